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
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/sampler.h>

namespace lockstep {

/// A place in a sampler's epochs. Equal on all ranks that share an order and have taken equally
/// many indices, so that the one in rank 0's checkpoint serves all, and any number of ranks that
/// divides `taken`.
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
/// The indices that this rank has taken at `position`, 0 to sampler.size(). CheckpointError when
/// the position is of a sampler that describes itself differently, is not in its epoch, or does not
/// divide by its ranks. At the end of an epoch any number of ranks will do.
std::int64_t next_at(const Sampler& sampler, const SamplerPosition& position);

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
  /// What next() will still give in this epoch.
  std::int64_t remaining() const { return sampler_->size() - next_; }

  /// To the beginning of `epoch`. ConfigError when it is negative.
  void set_epoch(std::int64_t epoch);

  SamplerPosition position() const { return position_of(*sampler_, epoch_, next_); }
  /// Goes on exactly there. Throws what next_at() throws, and stays where it is then.
  void restore(const SamplerPosition& position);

  const Sampler& sampler() const { return *sampler_; }

 private:
  void load();

  std::shared_ptr<const Sampler> sampler_;
  std::vector<std::int64_t> indices_;  // of the epoch, once next() has asked for them
  std::int64_t epoch_ = 0;
  std::int64_t next_ = 0;
  bool loaded_ = false;
};

}  // namespace lockstep
