// All-reduce over a backend's point-to-point messages: executes a schedule (schedule.h).
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

namespace lockstep::comm {

/// Starts an in-place all-reduce by one of the algorithms over point-to-point messages. All ranks
/// of the backend's group must call it with the same algorithm, `operation`, size, type and `op`.
/// `operation` is a number that grows with every such call on the group. `flat` is one-dimensional
/// and contiguous, and `op` is defined for its type (why_not_reducible).
///
/// All ranks get bitwise equal results. float16 and bfloat16 are added in float32 and rounded once;
/// most algorithms send float32 for that purpose. The average is the sum times 1/size.
///
/// The Work has no thread: it makes progress when a caller waits for it or queries it, and when
/// `progress`, if given, is advanced. It keeps itself alive until it has ended. If a transfer
/// fails, the Work fails with the same type of error. In a wait without a timeout, each transfer
/// has the group's timeout.
///
/// Events are recorded in `trace` or, if it is null, in this thread's TraceScope, if any. The trace
/// is written until the Work has ended.
std::shared_ptr<Work> start_all_reduce(Algorithm algorithm, std::shared_ptr<Backend> backend,
                                       std::shared_ptr<Progress> progress, int rank, int size,
                                       std::uint64_t operation, torch::Tensor flat, ReduceOp op,
                                       Trace* trace = nullptr);

}  // namespace lockstep::comm
