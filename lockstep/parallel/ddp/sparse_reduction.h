// Averages sparse gradients, such as those of an embedding with sparse(true).
#pragma once

#include <memory>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/parallel/ddp/phased_work.h>

namespace lockstep::parallel {

/// An empty sparse gradient with the shape of `parameter`, for a rank that has no gradient.
torch::Tensor empty_sparse(const torch::Tensor& parameter);

/// Starts averaging `gradient` (sparse COO; each rank has its own indices, possibly none). When the
/// handle has ended, `*result` is the mean, coalesced and equal on all ranks. The ranks first
/// exchange their numbers of indices. Then each sends indices and values, padded to the largest of
/// these numbers: 8 bytes for each index and sparse dimension, plus the values. Additions are in
/// rank order. The handle ends with a ConfigError on all ranks if gradients have different sparse
/// dimensions.
std::shared_ptr<PhasedWork> async_mean_sparse(const torch::Tensor& gradient, ProcessGroup group,
                                              std::shared_ptr<torch::Tensor> result);

}  // namespace lockstep::parallel
