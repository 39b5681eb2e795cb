// Adds the gradients of all replicas on the first device.
#pragma once

#include <vector>

#include <torch/types.h>

namespace lockstep::detail::data_parallel {

/// a + b, where either may be sparse. LibTorch supports dense + sparse, but not sparse + dense.
torch::Tensor gradient_sum(const torch::Tensor& a, const torch::Tensor& b);

/// Returns, for each index, the sum over the replicas, on `device`, added in the order of the
/// replicas, so that every run gives the same bits. Undefined tensors are skipped; if all are
/// undefined, so is the sum. Gradients are copied between devices once per dtype. `of_replicas`
/// holds a list of equal length for each replica, with all tensors of a list on one device.
/// Gradient mode must be off.
std::vector<torch::Tensor> sum_gradients(std::vector<std::vector<torch::Tensor>> of_replicas,
                                         torch::Device device);

}  // namespace lockstep::detail::data_parallel
