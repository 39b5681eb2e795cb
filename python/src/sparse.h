// All-reduce of sparse tensors, such as the gradients of torch.nn.Embedding(sparse=True).
#pragma once

#include <chrono>

#include "several_tensors.h"

namespace lockstep_c10d {

/// Whether a call with these tensors must use all_reduce_sparse().
bool is_sparse(const Tensors& tensors);

/// Collective. Every tensor becomes the coalesced sum of all ranks' tensors. Ranks may have
/// different numbers of elements. Throws ValueError if shapes or types differ, or if `op` is not
/// the sum. Unlike other calls, this one waits for the peers, because the size of the transfer
/// depends on their numbers of elements.
lockstep::WorkPtr all_reduce_sparse(lockstep::ProcessGroup& group, const Tensors& tensors,
                                    lockstep::ReduceOp op, std::chrono::milliseconds timeout);

}  // namespace lockstep_c10d
