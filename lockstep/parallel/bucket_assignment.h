// Which gradients travel together.
#pragma once

#include <cstddef>
#include <vector>

#include <torch/torch.h>

namespace lockstep {

struct BucketCaps {
  /// The first bucket is small, so that the first reduction starts early in backward.
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t bytes = std::size_t{25} << 20;
};

/// Indices into `parameters` for each bucket. Backward produces gradients roughly in the reverse order
/// of registration, so buckets are filled in that order. A bucket holds one dtype and is closed when
/// it has reached its cap (PyTorch's rule: Li et al., "PyTorch Distributed", VLDB 2020, section
/// 3.2.2); a tensor is never split.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<torch::Tensor>& parameters,
                                                     const BucketCaps& caps);

}  // namespace lockstep
