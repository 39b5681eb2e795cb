// The samplers' random numbers: LibTorch's, so that the orders are PyTorch's.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// torch.Generator().manual_seed(seed + epoch)
at::Generator epoch_generator(std::uint64_t seed, std::int64_t epoch);

/// A tensor of int64 in one dimension, contiguous.
std::vector<std::int64_t> to_indices(const torch::Tensor& tensor);

/// torch.randperm(size, generator=epoch_generator(seed, epoch))
std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed,
                                             std::int64_t epoch);

}  // namespace lockstep
