// Calls of one rank with several tensors, which stand for several devices. Only the raw methods of
// a backend take such lists; meaning and restrictions are those of Gloo.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep_c10d {

using Tensors = std::vector<at::Tensor>;

/// The one tensor of a call of which Gloo, too, takes no more: else a ValueError.
const at::Tensor& single(const Tensors& tensors, const char* call);

/// Every tensor becomes the reduction of all tensors of all ranks. They have one shape and type.
lockstep::WorkPtr all_reduce(lockstep::ProcessGroup& group, const Tensors& tensors,
                             lockstep::ReduceOp op);

/// Every tensor becomes tensors[root_tensor] of rank `root`.
lockstep::WorkPtr broadcast(lockstep::ProcessGroup& group, const Tensors& tensors, int root,
                            int root_tensor);

/// Each list of `outputs`, one for each input, has the inputs of all ranks, rank after rank.
lockstep::WorkPtr all_gather(lockstep::ProcessGroup& group, const std::vector<Tensors>& outputs,
                             const Tensors& inputs);

/// The sum of `tensors` of this rank, for an average too, or what else `op` makes of them.
at::Tensor reduced_here(const Tensors& tensors, lockstep::ReduceOp op);

}  // namespace lockstep_c10d
