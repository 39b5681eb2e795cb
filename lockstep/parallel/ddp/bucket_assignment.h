// Assigns gradients to the buckets in which they are reduced.
#pragma once

#include <cstddef>
#include <vector>

#include <torch/types.h>

namespace lockstep::detail {

struct BucketCaps {
  /// The first bucket is small, so that the first reduction starts early in backward.
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t bytes = std::size_t{25} << 20;
};

/// Returns the indices into `parameters` for each bucket, in the order in which the buckets are
/// reduced. `order` lists every parameter once, in the order in which gradients are expected;
/// buckets are filled in this order. A bucket holds one dtype and is closed when it has reached its
/// cap (PyTorch's rule: Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.2); a tensor is
/// never split. A parameter i with `alone[i]` gets a separate bucket; an empty `alone` selects
/// none.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<torch::Tensor>& parameters,
                                                     const std::vector<std::size_t>& order,
                                                     const BucketCaps& caps,
                                                     const std::vector<bool>& alone = {});

/// The usual order of gradients in backward: the last of `count` parameters first.
std::vector<std::size_t> reverse_order(std::size_t count);

}  // namespace lockstep::detail
