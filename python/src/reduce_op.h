// Converts PyTorch's reduction operations to Lockstep's.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <lockstep/comm/call/reduce_op.h>

namespace lockstep_c10d {

/// Throws ValueError if Lockstep does not support the operation.
lockstep::ReduceOp reduce_op(const c10d::ReduceOp& op);

}  // namespace lockstep_c10d
