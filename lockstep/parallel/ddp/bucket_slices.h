// Which part of a flat bucket is whose: each rank updates one slice of it.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep {

/// Elements [begin, end).
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

/// The slice of `rank` when the bucket's elements are cut into equal slices in the order of ranks.
ElementRange slice_of(const GradBucket& bucket, int rank, int size);

/// That range of a flat tensor.
torch::Tensor narrowed(const torch::Tensor& flat, ElementRange range);

/// Where parameter `i` begins in the bucket.
std::int64_t offset_of(const GradBucket& bucket, std::size_t i);

/// Elements of a slice, counted from its begin, that can be updated by one call of a rule.
struct SliceRun {
  ElementRange elements;
  std::int64_t steps = 0;  ///< that their parameters have made
  std::size_t group = 0;   ///< of the optimizer, whose rule it is
  bool operator==(const SliceRun&) const = default;
};

/// What of `slice` belongs to parameters that have a gradient, in as few runs as possible: nearly
/// always it is the whole slice. `steps` and `groups` are those of each parameter of the bucket.
/// With `with_padding` the padding behind a parameter, all zeros, goes with it.
std::vector<SliceRun> runs_with_gradients(const GradBucket& bucket, ElementRange slice,
                                          const std::vector<std::int64_t>& steps,
                                          const std::vector<std::size_t>& groups,
                                          bool with_padding);

/// Where parameter `i` lies, as long as nobody gave it other memory.
const void* place_of(const GradBucket& bucket, std::size_t i);

}  // namespace lockstep
