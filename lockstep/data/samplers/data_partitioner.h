// A data set cut into random parts, one for each rank, for hand-written synchronous SGD.
//
//   const auto partitions = DataPartitioner::equal(dataset.size(), group.size(), seed);
//   const SubsetRandomSampler sampler(partitions.use(group.rank()), seed);  // shuffles every epoch
//
// Each rank's sampler has its own indices, so a SamplerPosition is valid only on its rank: to
// resume in the middle of an epoch, each rank saves and restores its own.
//
// Source: PyTorch's tutorial "Writing Distributed Applications with PyTorch". The order differs:
// the tutorial shuffles with Python's random.Random, this class with torch.randperm, as all
// samplers do. The tutorial loses some images to rounding; here fractions that sum to 1 cover all
// images.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// Immutable and thread-safe. All ranks must pass the same size, fractions and seed; then their
/// partitions are disjoint.
class LOCKSTEP_API DataPartitioner {
 public:
  /// Throws a ConfigError if the data set is empty, there are no fractions, one is not positive,
  /// they sum to more than 1 (within 1e-9), or a partition would get no image.
  DataPartitioner(std::int64_t dataset_size, const std::vector<double>& fractions,
                  std::uint64_t seed = 0);
  /// Makes `count` partitions whose sizes differ by at most one. Throws a ConfigError unless
  /// `count` is from 1 to the size of the data set.
  static DataPartitioner equal(std::int64_t dataset_size, int count, std::uint64_t seed = 0);

  /// The number of partitions.
  int size() const { return static_cast<int>(ends_.size()); }
  /// The data set's indices in `partition` (from 0), shuffled. Throws a ConfigError if there is no
  /// such partition.
  std::vector<std::int64_t> use(int partition) const;

 private:
  std::int64_t dataset_size_;
  std::vector<std::int64_t> ends_;  // end of each partition, as a position in the shuffled order
  std::uint64_t seed_;
};

}  // namespace lockstep
