// Which all-reduce algorithm, and how finely it cuts: decided by what was measured. Without
// LibTorch.
#pragma once

#include <cstddef>
#include <string>

#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/call/reduce_op.h>

namespace lockstep {

/// What kAuto stands for on this backend, for `bytes` of one rank's tensor: kNative, or one of ours
/// where that is faster. The measurements that this follows are in docs/algorithms.md.
Algorithm choose_algorithm(const std::string& backend, int ranks, std::size_t bytes, DataType type,
                           ReduceOp op);

/// Elements of a chunk (ScheduleRequest::chunk); 0 for algorithms that have none.
std::size_t default_chunk(Algorithm algorithm, const std::string& backend, int size,
                          std::size_t element_bytes);

}  // namespace lockstep
