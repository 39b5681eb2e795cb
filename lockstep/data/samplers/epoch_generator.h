// The samplers' random numbers come from LibTorch, so that the orders equal PyTorch's.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace lockstep::data {

/// torch.Generator().manual_seed(seed + epoch)
at::Generator epoch_generator(std::uint64_t seed, std::int64_t epoch);

/// Converts a contiguous int64 tensor of one dimension.
std::vector<std::int64_t> to_indices(const torch::Tensor& tensor);

/// torch.randperm(size, generator=epoch_generator(seed, epoch))
std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed,
                                             std::int64_t epoch);

}  // namespace lockstep::data
