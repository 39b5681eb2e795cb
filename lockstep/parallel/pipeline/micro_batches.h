// Splits a batch into parts of nearly equal size.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace lockstep::pipeline {

using Tensors = std::vector<torch::Tensor>;

/// Splits `samples` into `parts` sizes, which differ by at most one, larger ones first.
std::vector<std::int64_t> part_sizes(std::int64_t samples, int parts);

/// Cuts `tensor` along dimension 0 into views of these sizes. An undefined tensor yields undefined
/// ones. Throws ConfigError, calling the tensor `name`, unless the sizes add up to dimension 0.
Tensors split_batch(const torch::Tensor& tensor, const std::vector<std::int64_t>& sizes,
                    const char* name);

/// For each micro-batch, its part of each tensor in `x`, the inputs of the first stage.
std::vector<Tensors> split_inputs(const Tensors& x, const std::vector<std::int64_t>& sizes);

/// The loss of the batch, from the weighted losses of the micro-batches.
torch::Tensor sum_of_losses(const std::vector<Tensors>& losses);

/// The outputs of the micro-batches, concatenated along dimension 0. An output that is undefined in
/// the first micro-batch stays undefined.
Tensors joined_outputs(const std::vector<Tensors>& outputs);

}  // namespace lockstep::pipeline
