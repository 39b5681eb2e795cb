// The gradients of all replicas, added on the first device.
#pragma once

#include <vector>

#include <torch/types.h>

namespace lockstep::data_parallel {

/// a + b, of which one or both may be sparse. LibTorch has dense + sparse, but not sparse + dense.
torch::Tensor gradient_sum(const torch::Tensor& a, const torch::Tensor& b);

/// For each place the sum over the replicas, on `device`, added in the order of the replicas, so
/// that every run has the same bits. An undefined tensor counts for nothing; where all are
/// undefined, so is the sum. Gradients travel between devices in one copy for each dtype.
/// `of_replicas` holds a list of the same length for each replica, with all of a list's tensors on
/// one device. Call it without a graph.
std::vector<torch::Tensor> sum_gradients(std::vector<std::vector<torch::Tensor>> of_replicas,
                                         torch::Device device);

}  // namespace lockstep::data_parallel
