// All-reduce of sparse tensors, such as the gradients of torch.nn.Embedding(sparse=True).
#pragma once

#include <chrono>

#include "several_tensors.h"

namespace lockstep_c10d {

/// Whether a call is one of this file.
bool is_sparse(const Tensors& tensors);

/// Collective. Every tensor becomes the sum of all ranks' tensors, coalesced. Ranks may have
/// different numbers of elements, but one shape and type; ValueError for these and for other
/// reductions than the sum. Unlike others this call waits for the peers: how many elements they
/// have decides what follows.
lockstep::WorkPtr all_reduce_sparse(lockstep::ProcessGroup& group, const Tensors& tensors,
                                    lockstep::ReduceOp op, std::chrono::milliseconds timeout);

}  // namespace lockstep_c10d
