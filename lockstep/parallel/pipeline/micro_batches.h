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

/// The memory of `parts`, without graphs and with version counters of their own; parts that share
/// memory share a counter. The parts of one batch have a common counter, so that LibTorch would
/// take work in place on one micro-batch for a change of what the graphs of all others saved.
Tensors with_own_versions(const Tensors& parts);

/// Call it after work on `own`, the result of with_own_versions(parts). If any tensor was changed
/// in place, raises the version of its part, so that a graph of the caller that saved the batch
/// notices, and returns true.
bool pass_changes_on(const Tensors& own, const Tensors& parts);

/// Whether both are defined and share memory.
bool share_memory(const torch::Tensor& a, const torch::Tensor& b);

/// The loss of the batch, from the weighted losses of the micro-batches.
torch::Tensor sum_of_losses(const std::vector<Tensors>& losses);

/// The outputs of the micro-batches, concatenated along dimension 0. Outputs without dimensions
/// become a vector with one element for each micro-batch. An output may be undefined in all
/// micro-batches. Throws ConfigError if the outputs of two micro-batches cannot be joined.
Tensors joined_outputs(const std::vector<Tensors>& outputs);

}  // namespace lockstep::pipeline
