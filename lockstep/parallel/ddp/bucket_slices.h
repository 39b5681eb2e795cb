// Divides a flat bucket into slices, one for each rank to update.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep::parallel {

/// Elements [begin, end).
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

/// The slice of `rank` when the bucket's elements are cut into `size` equal slices in rank order.
ElementRange slice_of(const GradBucket& bucket, int rank, int size);

/// Returns `range` of a flat tensor, as a view.
torch::Tensor narrowed(const torch::Tensor& flat, ElementRange range);

/// Where parameter `i` begins in the bucket.
std::int64_t offset_of(const GradBucket& bucket, std::size_t i);

/// Elements of a slice, counted from its beginning, that one call of a rule can update.
struct SliceRun {
  ElementRange elements;
  std::int64_t steps = 0;  ///< made so far by their parameters
  std::size_t group = 0;   ///< the optimizer's group, whose rule applies
  bool operator==(const SliceRun&) const = default;
};

/// The parts of `slice` that belong to parameters with a gradient, in as few runs as possible,
/// nearly always a single one. `steps` and `groups` have an entry for each parameter of the bucket.
/// With `with_padding`, the zero padding after each parameter is included.
std::vector<SliceRun> runs_with_gradients(const GradBucket& bucket, ElementRange slice,
                                          const std::vector<std::int64_t>& steps,
                                          const std::vector<std::size_t>& groups,
                                          bool with_padding);

/// The address of parameter `i` in the bucket: the parameter is there unless it has been given
/// other memory.
const void* place_of(const GradBucket& bucket, std::size_t i);

}  // namespace lockstep::parallel
