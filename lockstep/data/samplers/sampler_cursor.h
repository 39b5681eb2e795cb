// A walk through a sampler's epochs that can go on where it stopped.
//
//   SamplerCursor cursor(DistributedSampler(dataset.size(), {.rank = rank, .world_size = ranks}));
//   if (resuming) cursor.restore(sampler_position(checkpoint.settings));
//   while (const std::optional<std::int64_t> index = cursor.next()) train(*index);
//
// and at any time CheckpointInfo{.settings = to_settings(cursor.position())}.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/samplers/sampler.h>

namespace lockstep {

/// A place in a sampler's epochs. Equal on all ranks that share an order and have taken equally
/// many indices, so that the one in rank 0's checkpoint serves all, and any number of ranks.
struct SamplerPosition {
  std::string sampler{};   ///< Sampler::describe()
  std::int64_t epoch = 0;  ///< From 0.
  std::int64_t taken = 0;  ///< Indices of the epoch that all ranks together have taken.

  bool operator==(const SamplerPosition&) const = default;
};

/// As text by name ("sampler", "sampler_epoch", "sampler_taken"), for CheckpointInfo::settings.
std::map<std::string, std::string> to_settings(const SamplerPosition& position);
/// What to_settings() put among `settings`. CheckpointError when it is missing or damaged.
SamplerPosition sampler_position(const std::map<std::string, std::string>& settings);

/// Where all stand when each rank has taken `next` indices of `epoch`.
SamplerPosition position_of(const Sampler& sampler, std::int64_t epoch, std::int64_t next);
/// CheckpointError when the position is of a sampler that describes itself differently, or is not
/// in its epoch.
void check_position(const Sampler& sampler, const SamplerPosition& position);

/// Begins at epoch 0 and stays at an epoch's end until set_epoch(). Not thread-safe: one thread
/// calls.
class SamplerCursor {
 public:
  /// ConfigError without a sampler.
  explicit SamplerCursor(std::shared_ptr<const Sampler> sampler);
  template <std::derived_from<Sampler> S>
  explicit SamplerCursor(S sampler)
      : SamplerCursor(std::make_shared<const S>(std::move(sampler))) {}

  /// The next index of the epoch; none at its end.
  std::optional<std::int64_t> next();
  /// The next `count` indices; fewer, at last none, at the epoch's end.
  std::vector<std::int64_t> next(std::int64_t count);
  /// Passes over the next `count` indices. ConfigError when it is negative or there are not as
  /// many.
  void skip(std::int64_t count);
  /// All that next() will still give in this epoch. Valid until set_epoch() or restore(), or the
  /// end of the cursor's life, also when it is moved.
  std::span<const std::int64_t> rest();
  /// How often each of rest() came before in the epoch, see EpochShare; valid as long.
  std::span<const std::uint32_t> occurrences();
  /// How many rest() are.
  std::int64_t remaining() const;

  /// To the beginning of `epoch`. ConfigError when it is negative.
  void set_epoch(std::int64_t epoch);

  SamplerPosition position() const;
  /// How many indices each rank had taken at position(), rounded down where they were other ranks.
  std::int64_t place() const { return taken_ / sampler_->world_size() + next_; }
  /// Goes on exactly there, with any number of ranks. Throws what check_position() and
  /// Sampler::share() throw, and stays where it is then.
  void restore(const SamplerPosition& position);

  std::int64_t epoch() const { return epoch_; }
  const Sampler& sampler() const { return *sampler_; }
  const std::shared_ptr<const Sampler>& shared_sampler() const { return sampler_; }

 private:
  void load();

  std::shared_ptr<const Sampler> sampler_;
  EpochShare share_;        // of the epoch from taken_ on, once it was asked for
  std::int64_t taken_ = 0;  // by all ranks, before share_ begins
  std::int64_t epoch_ = 0;
  std::int64_t next_ = 0;  // in share_
  bool loaded_ = false;
};

}  // namespace lockstep
