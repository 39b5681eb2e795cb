// Which images a rank sees in an epoch, and in which order.
//
// Here are the interface and the orders without weights or subsets that every program needs; others
// are in random_sampler.h, weighted_sampler.h and data_partitioner.h, batches of indices in
// batch_sampler.h. sampler_cursor.h walks through any of them and can go on where it stopped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What one rank sees of an epoch, or of the rest of one.
struct EpochShare {
  std::vector<std::int64_t> indices{};
  /// For each of them, how often it came before in the epoch, on whatever rank. Empty where no
  /// index comes twice. The loader's random choices depend on it, so that an image that is drawn 32
  /// times is augmented in 32 ways.
  std::vector<std::uint32_t> occurrences{};
};

/// How often each index of a whole order came before in it; empty where none comes twice.
std::vector<std::uint32_t> occurrences_in(std::span<const std::int64_t> order);

/// Samplers are immutable: the order is a function of the epoch, and any thread may ask.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// The data set's indices for this rank in `epoch` (from 0), size() of them.
  virtual std::vector<std::int64_t> indices(std::int64_t epoch) const = 0;
  virtual std::int64_t size() const = 0;

  /// What the order follows from, as text: the kind and its options, without rank and number of
  /// ranks. A saved position is taken back only where this is the same. By default it tells
  /// samplers apart by their size alone: override it.
  virtual std::string describe() const;

  /// The ranks that take turns in one order: rank r of W has its indices r, r + W, r + 2 W, ...
  virtual int world_size() const { return 1; }
  /// Indices in that order, without any that are repeated to make the shares equal.
  virtual std::int64_t shared_size() const { return size(); }
  /// Whether an index may come several times in indices(). Where it is false nobody counts them.
  virtual bool may_repeat() const { return true; }

  /// This rank's share of what is left of `epoch` when all ranks together have taken the first
  /// `taken` indices (0 to shared_size()) of the shared order: the ranks take turns in the rest,
  /// beginning with rank 0. With none taken these are indices(epoch).
  ///
  /// By default it is cut out of indices(epoch), in which occurrences are counted, and a
  /// CheckpointError where that does not tell because `taken` does not divide by the ranks. A
  /// sampler of several ranks that can compute its whole order overrides it: then a run may go on
  /// with any number of ranks, and occurrences count on all of them.
  virtual EpochShare share(std::int64_t epoch, std::int64_t taken) const;
};

/// 0, 1, 2, ... in every epoch.
class SequentialSampler : public Sampler {
 public:
  /// ConfigError when the size is negative.
  explicit SequentialSampler(std::int64_t dataset_size);

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override { return dataset_size_; }
  std::string describe() const override;
  bool may_repeat() const override { return false; }

 private:
  std::int64_t dataset_size_;
};

struct DistributedSamplerOptions {
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  std::uint64_t seed = 0;  ///< Must be equal on all ranks.
  bool drop_last =
      false;  ///< Drop the tail that does not divide by the ranks, instead of repeating.
};

/// Equal shares for all ranks, for training: torch.utils.data.DistributedSampler index for index,
/// with set_epoch(epoch). Shuffles by torch.randperm with a CPU generator seeded seed + epoch; pads
/// with the first indices (so some are seen twice) unless `drop_last`. The rest of an epoch that
/// was begun with another number of ranks is padded, or cut, in the same way.
class DistributedSampler : public Sampler {
 public:
  /// ConfigError when the rank is not in the world or a number is negative.
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

/// Every index exactly once over all ranks, in order: rank, rank + world_size, ... For evaluation;
/// the shares of two ranks may differ by one, so no collective may run per batch.
class EvaluationSampler : public Sampler {
 public:
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
