// A data set cut into parts at random, one for each rank: synchronous SGD by hand.
//
//   const auto partitions = DataPartitioner::equal(dataset.size(), group.size(), seed);
//   const SubsetRandomSampler sampler(partitions.use(group.rank()), seed);  // shuffles every epoch
//
// Each rank's sampler has indices of its own, so a SamplerPosition of one rank serves that rank
// alone: to go on in the middle of an epoch, each rank saves and restores its own.
//
// Source: PyTorch's tutorial "Writing Distributed Applications with PyTorch". The idea is the same,
// the order is not: there Python's random.Random shuffles, here torch.randperm as in all samplers.
// And where there some images are lost to rounding, here fractions that sum to 1 cover all.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Immutable, and any thread may ask. All ranks must give the same size, fractions and seed: then
/// their partitions are disjoint.
class DataPartitioner {
 public:
  /// ConfigError when the data set is empty, when there are no fractions, one is not positive, they
  /// sum to more than 1 (within 1e-9), or a partition would get no image.
  DataPartitioner(std::int64_t dataset_size, const std::vector<double>& fractions,
                  std::uint64_t seed = 0);
  /// `count` partitions whose sizes differ by at most one.
  static DataPartitioner equal(std::int64_t dataset_size, int count, std::uint64_t seed = 0);

  /// Partitions.
  int size() const { return static_cast<int>(ends_.size()); }
  /// The data set's indices in `partition` (from 0), shuffled. ConfigError when there is no such
  /// partition.
  std::vector<std::int64_t> use(int partition) const;

 private:
  std::int64_t dataset_size_;
  std::vector<std::int64_t> ends_;  // of each partition, as places in the shuffled order
  std::uint64_t seed_;
};

}  // namespace lockstep
