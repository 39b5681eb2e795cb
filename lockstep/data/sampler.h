// Which images a rank sees in an epoch, and in which order.
//
// Here are the interface and the orders without weights or subsets that every program needs; others
// are in random_sampler.h, weighted_sampler.h and data_partitioner.h, batches of indices in
// batch_sampler.h. sampler_cursor.h walks through any of them and can go on where it stopped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

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
};

/// 0, 1, 2, ... in every epoch.
class SequentialSampler : public Sampler {
 public:
  /// ConfigError when the size is negative.
  explicit SequentialSampler(std::int64_t dataset_size);

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override { return dataset_size_; }
  std::string describe() const override;

 private:
  std::int64_t dataset_size_;
};

struct DistributedSamplerOptions {
  int rank = 0;
  int world_size = 1;
  bool shuffle = true;
  std::uint64_t seed = 0;  ///< The same on all ranks.
  bool drop_last =
      false;  ///< Drop the tail that does not divide by the ranks, instead of repeating.
};

/// Equal shares for all ranks, for training: torch.utils.data.DistributedSampler index for index,
/// with set_epoch(epoch). Shuffles by torch.randperm with a CPU generator seeded seed + epoch; pads
/// with the first indices (so some are seen twice) unless `drop_last`.
class DistributedSampler : public Sampler {
 public:
  /// ConfigError when the rank is not in the world or a number is negative.
  DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options = {});

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override { return size_; }
  std::string describe() const override;
  int world_size() const override { return options_.world_size; }
  std::int64_t shared_size() const override { return dataset_size_; }

 private:
  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
  std::int64_t size_;
};

/// Every index exactly once over all ranks, in order: rank, rank + world_size, ... For evaluation;
/// the shares of two ranks may differ by one, so no collective may run per batch.
class EvaluationSampler : public Sampler {
 public:
  EvaluationSampler(std::int64_t dataset_size, int rank = 0, int world_size = 1);

  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::int64_t size() const override;
  std::string describe() const override;
  int world_size() const override { return world_size_; }
  std::int64_t shared_size() const override { return dataset_size_; }

 private:
  std::int64_t dataset_size_;
  int rank_;
  int world_size_;
};

}  // namespace lockstep
