// Calls in which one rank passes several tensors, one per device. Only the raw methods of a backend
// take such lists. Meaning and restrictions are those of Gloo.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep_c10d {

using Tensors = std::vector<at::Tensor>;

/// The tensor of a call that takes only one, as with Gloo. Throws ValueError if there are more or
/// none.
const at::Tensor& single(const Tensors& tensors, const char* call);

/// Every tensor becomes the reduction of all tensors of all ranks. All tensors must have the same
/// shape and type.
lockstep::WorkPtr all_reduce(lockstep::ProcessGroup& group, const Tensors& tensors,
                             lockstep::ReduceOp op);

/// Every tensor becomes tensors[root_tensor] of rank `root`.
lockstep::WorkPtr broadcast(lockstep::ProcessGroup& group, const Tensors& tensors, int root,
                            int root_tensor);

/// `outputs` has one list per input. Each list receives the inputs of all ranks, in rank order.
lockstep::WorkPtr all_gather(lockstep::ProcessGroup& group, const std::vector<Tensors>& outputs,
                             const Tensors& inputs);

/// The reduction of this rank's `tensors`. For an average, this is their sum.
at::Tensor reduced_here(const Tensors& tensors, lockstep::ReduceOp op);

}  // namespace lockstep_c10d
