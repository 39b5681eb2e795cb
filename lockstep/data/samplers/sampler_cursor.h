// Iterates over a sampler's epochs and can resume where it stopped.
//
//   SamplerCursor cursor(DistributedSampler(dataset.size(), {.rank = rank, .world_size = ranks}));
//   if (resuming) cursor.restore(sampler_position(checkpoint.settings));
//   while (const std::optional<std::int64_t> index = cursor.next()) train(*index);
//
// To save the position at any time: CheckpointInfo{.settings = to_settings(cursor.position())}.
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

#include <lockstep/core/export.h>
#include <lockstep/data/samplers/sampler.h>

namespace lockstep {

/// A position in a sampler's epochs. It is equal on all ranks that share an order and have taken
/// the same number of indices, so the position in rank 0's checkpoint serves any number of ranks.
struct LOCKSTEP_API SamplerPosition {
  std::string sampler{};   ///< Sampler::describe()
  std::int64_t epoch = 0;  ///< From 0.
  std::int64_t taken = 0;  ///< Indices of the epoch that all ranks together have taken.

  bool operator==(const SamplerPosition&) const = default;
};

/// The position as named texts ("sampler", "sampler_epoch", "sampler_taken"), for
/// CheckpointInfo::settings.
LOCKSTEP_API std::map<std::string, std::string> to_settings(const SamplerPosition& position);
/// The inverse of to_settings(). Throws a CheckpointError if an entry is missing or damaged.
LOCKSTEP_API SamplerPosition sampler_position(const std::map<std::string, std::string>& settings);

/// The position after each rank has taken `next` indices of `epoch`.
LOCKSTEP_API SamplerPosition position_of(const Sampler& sampler, std::int64_t epoch,
                                         std::int64_t next);
/// Throws a CheckpointError if the position's sampler has another description, or the position is
/// outside of the epoch.
LOCKSTEP_API void check_position(const Sampler& sampler, const SamplerPosition& position);

/// Iterates over one epoch at a time, from epoch 0 on, and stays at an epoch's end until
/// set_epoch(). Not thread-safe.
class LOCKSTEP_API SamplerCursor {
 public:
  /// Throws a ConfigError if `sampler` is null.
  explicit SamplerCursor(std::shared_ptr<const Sampler> sampler);
  template <std::derived_from<Sampler> S>
  explicit SamplerCursor(S sampler)
      : SamplerCursor(std::make_shared<const S>(std::move(sampler))) {}

  /// The next index of the epoch; none at its end.
  std::optional<std::int64_t> next();
  /// The next `count` indices; fewer, and finally none, at the epoch's end. Throws a ConfigError if
  /// `count` is not positive.
  std::vector<std::int64_t> next(std::int64_t count);
  /// Skips the next `count` indices. Throws a ConfigError if `count` is negative or larger than
  /// remaining().
  void skip(std::int64_t count);
  /// All indices that next() will still return in this epoch. Valid until set_epoch() or restore(),
  /// or the end of the cursor's life; moving the cursor keeps it valid.
  std::span<const std::int64_t> rest();
  /// How often each index of rest() has already occurred, see EpochShare; valid as long as rest().
  std::span<const std::uint32_t> occurrences();
  /// The number of indices in rest().
  std::int64_t remaining() const;

  /// Moves to the beginning of `epoch`. Throws a ConfigError if it is negative.
  void set_epoch(std::int64_t epoch);

  SamplerPosition position() const;
  /// The number of indices that each rank has taken at position(), rounded down after a resume with
  /// another number of ranks.
  std::int64_t place() const { return taken_ / sampler_->world_size() + next_; }
  /// Moves exactly to the given position, with any number of ranks. Throws what check_position()
  /// and Sampler::share() throw; the cursor then does not move.
  void restore(const SamplerPosition& position);

  std::int64_t epoch() const { return epoch_; }
  const Sampler& sampler() const { return *sampler_; }
  const std::shared_ptr<const Sampler>& shared_sampler() const { return sampler_; }

 private:
  void load();

  std::shared_ptr<const Sampler> sampler_;
  EpochShare share_;        // the epoch from taken_ on; computed on first use
  std::int64_t taken_ = 0;  // by all ranks, before share_ begins
  std::int64_t epoch_ = 0;
  std::int64_t next_ = 0;  // in share_
  bool loaded_ = false;
};

}  // namespace lockstep
