// A batch in parts of nearly the same size.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

namespace pipeline {

/// The sizes of `parts` parts of `samples`: they differ by one at most, and the larger ones come
/// first.
std::vector<std::int64_t> part_sizes(std::int64_t samples, int parts);

/// Views of `tensor` along dimension 0, of these sizes; as many undefined tensors for an undefined
/// one. ConfigError, which calls the tensor `name`, unless dimension 0 has as many as all sizes
/// together.
Tensors split_batch(const torch::Tensor& tensor, const std::vector<std::int64_t>& sizes,
                    const char* name);

}  // namespace pipeline
}  // namespace lockstep
