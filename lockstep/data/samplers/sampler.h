// The images that a rank sees in an epoch, and their order.
//
// This header has the interface and the samplers that every program needs: those without weights or
// subsets. Other samplers are in random_sampler.h, weighted_sampler.h and data_partitioner.h, and
// batches of indices in batch_sampler.h. sampler_cursor.h iterates over any sampler and can resume
// where it stopped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// One rank's share of an epoch, or of the rest of an epoch.
struct LOCKSTEP_API EpochShare {
  std::vector<std::int64_t> indices{};
  /// For each index, how often it has already occurred in the epoch, on any rank. Empty if no index
  /// occurs twice. The loader's random choices depend on it, so an image that is drawn 32 times is
  /// augmented in 32 ways.
  std::vector<std::uint32_t> occurrences{};
};

/// How often each index has already occurred before its position in `order`; empty if none repeats.
LOCKSTEP_API std::vector<std::uint32_t> occurrences_in(std::span<const std::int64_t> order);

/// Samplers are immutable and thread-safe: the order is a function of the epoch.
class LOCKSTEP_API Sampler {
 public:
  virtual ~Sampler() = default;
  /// The size() indices of this rank in `epoch` (from 0).
  virtual std::vector<std::int64_t> indices(std::int64_t epoch) const = 0;
  virtual std::int64_t size() const = 0;

  /// Describes the order as text: the sampler's kind and options, without rank and number of ranks.
  /// A saved position is accepted only if this text is equal. Override it: the default
  /// distinguishes samplers only by their size.
  virtual std::string describe() const;

  /// The number of ranks that share one order: rank r of W has its indices r, r + W, r + 2 W, ...
  virtual int world_size() const { return 1; }
  /// The number of indices in that order, without the repeats that make the shares equal.
  virtual std::int64_t shared_size() const { return size(); }
  /// Whether indices() may contain an index several times. If false, occurrences are not counted.
  virtual bool may_repeat() const { return true; }

  /// This rank's share of the rest of `epoch` after all ranks together have taken the first `taken`
  /// indices (0 to shared_size()) of the shared order. The ranks take turns in the rest, beginning
  /// with rank 0. With 0 taken, the share is indices(epoch).
  ///
  /// The default cuts the share out of indices(epoch), and counts occurrences in it. It throws a
  /// CheckpointError if `taken` is not a multiple of the number of ranks. A sampler for several
  /// ranks that can compute the whole order should override this function: then a run may resume
  /// with any number of ranks, and occurrences are counted over all of them.
  virtual EpochShare share(std::int64_t epoch, std::int64_t taken) const;
};

/// The order 0, 1, 2, ... in every epoch.
class LOCKSTEP_API SequentialSampler : public Sampler {
 public:
  /// Throws a ConfigError if the size is negative.
  explicit SequentialSampler(std::int64_t dataset_size);

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override { return dataset_size_; }
  std::string describe() const override;
  bool may_repeat() const override { return false; }

 private:
  std::int64_t dataset_size_;
};

struct LOCKSTEP_API DistributedSamplerOptions {
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  std::uint64_t seed = 0;  ///< Must be equal on all ranks.
  /// Drop the last indices if they do not suffice for all ranks, instead of repeating others.
  bool drop_last = false;
};

/// Equal shares for all ranks, for training. Equals torch.utils.data.DistributedSampler index for
/// index, with set_epoch(epoch). Shuffles by torch.randperm with a CPU generator seeded seed +
/// epoch. Pads with the first indices (so some are seen twice) unless `drop_last`. After a resume
/// with another number of ranks, the rest of the epoch is padded, or cut, in the same way.
class LOCKSTEP_API DistributedSampler : public Sampler {
 public:
  /// Throws a ConfigError if the rank is not below the world size or a number is negative.
  DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options = {});

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override { return share_size(0); }
  std::string describe() const override;
  int world_size() const override { return options_.world_size; }
  std::int64_t shared_size() const override { return dataset_size_; }
  EpochShare share(std::int64_t epoch, std::int64_t taken) const override;

 private:
  std::int64_t share_size(std::int64_t taken) const;

  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
};

/// Each index exactly once over all ranks, in order: a rank's are rank, rank + world_size, ... For
/// evaluation; the shares of two ranks may differ by one, so no collective may run per batch.
class LOCKSTEP_API EvaluationSampler : public Sampler {
 public:
  /// Throws a ConfigError if the rank is not below the world size or a number is negative.
  EvaluationSampler(std::int64_t dataset_size, int rank = 0, int world_size = 1);

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override { return share_size(0); }
  std::string describe() const override;
  int world_size() const override { return world_size_; }
  std::int64_t shared_size() const override { return dataset_size_; }
  EpochShare share(std::int64_t epoch, std::int64_t taken) const override;

 private:
  std::int64_t share_size(std::int64_t taken) const;

  std::int64_t dataset_size_;
  int rank_;
  int world_size_;
};

}  // namespace lockstep
