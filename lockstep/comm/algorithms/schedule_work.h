// All-reduce over nothing but a backend's point-to-point: executes a schedule (schedule.h).
#pragma once

#include <cstdint>
#include <memory>

#include <torch/types.h>

#include <lockstep/comm/algorithms/choice.h>
#include <lockstep/comm/algorithms/trace.h>
#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/reduce_op.h>
#include <lockstep/comm/call/work.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep {

/// Starts an all-reduce, in place, by one of the algorithms over point-to-point. All ranks of the
/// backend's group must call it with the same algorithm, `operation` (a number that grows with
/// every such call on the group), size, type and operation. `flat` is one-dimensional and
/// contiguous, and `op` is defined for its type (why_not_reducible).
///
/// All ranks get the same bits. float16 and bfloat16 are added in float32 and rounded once, for
/// which most algorithms send float32. The average is the sum times 1/size.
///
/// There is no thread: the Work moves when somebody waits for it or asks it, and, where `progress`
/// is given, when that is advanced. It keeps itself alive until it has ended. When a transfer
/// fails, so does the Work, with the same type of error. A wait without a timeout gives each
/// transfer the group's.
///
/// `trace`, or that of this thread's TraceScope, is written until the Work has ended; it may be
/// null.
std::shared_ptr<Work> start_all_reduce(Algorithm algorithm, std::shared_ptr<Backend> backend,
                                       std::shared_ptr<Progress> progress, int rank, int size,
                                       std::uint64_t operation, torch::Tensor flat, ReduceOp op,
                                       Trace* trace = nullptr);

}  // namespace lockstep
