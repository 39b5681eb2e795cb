// PyTorch's reduction as ours.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <lockstep/comm/call/reduce_op.h>

namespace lockstep_c10d {

/// ValueError for one that is neither's.
lockstep::ReduceOp reduce_op(const c10d::ReduceOp& op);

}  // namespace lockstep_c10d
