// The mean of sparse gradients, as an embedding with sparse(true) makes them.
#pragma once

#include <memory>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/parallel/ddp/phased_work.h>

namespace lockstep {

/// The gradient of a rank that has none, of the shape of `parameter`.
torch::Tensor empty_sparse(const torch::Tensor& parameter);

/// Starts the mean of `gradient` (sparse COO, on each rank with indices of its own, also none at
/// all). When the handle has ended, `*result` is the mean, coalesced, on all ranks the same. First
/// the numbers of indices travel, then indices and values, as many as the rank with most of them
/// has: 8 bytes for each index and sparse dimension, and the values. Additions are in the order of
/// the ranks. The handle ends with a ConfigError on all ranks where gradients have different sparse
/// dimensions.
std::shared_ptr<PhasedWork> async_mean_sparse(const torch::Tensor& gradient, ProcessGroup group,
                                              std::shared_ptr<torch::Tensor> result);

}  // namespace lockstep
