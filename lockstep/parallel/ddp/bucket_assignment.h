// Which gradients travel together.
#pragma once

#include <cstddef>
#include <vector>

#include <torch/types.h>

namespace lockstep {

struct BucketCaps {
  /// The first bucket is small, so that the first reduction starts early in backward.
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t bytes = std::size_t{25} << 20;
};

/// Indices into `parameters` for each bucket, in the order in which the buckets are reduced.
/// `order` names every parameter once, as their gradients are expected to arrive, and buckets are
/// filled so. A bucket holds one dtype and is closed when it has reached its cap (PyTorch's rule:
/// Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.2); a tensor is never split. A
/// parameter i with `alone[i]` has a bucket to itself; no `alone`: none has.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<torch::Tensor>& parameters,
                                                     const std::vector<std::size_t>& order,
                                                     const BucketCaps& caps,
                                                     const std::vector<bool>& alone = {});

/// What backward does to most models: the last of `count` parameters first.
std::vector<std::size_t> reverse_order(std::size_t count);

}  // namespace lockstep
