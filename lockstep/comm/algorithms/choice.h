// Chooses the all-reduce algorithm and its chunk size from measurements. Does not depend on
// LibTorch.
#pragma once

#include <cstddef>
#include <string>

#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/data_type.h>
#include <lockstep/comm/call/reduce_op.h>

namespace lockstep {

/// The algorithm behind kAuto on this backend, for `bytes` of one rank's tensor: kNative, or one of
/// the algorithms over point-to-point if that is faster. The underlying measurements are in
/// docs/algorithms.md.
Algorithm choose_algorithm(const std::string& backend, int ranks, std::size_t bytes, DataType type,
                           ReduceOp op);

/// Number of elements per chunk (ScheduleRequest::chunk); 0 for algorithms without chunks.
std::size_t default_chunk(Algorithm algorithm, const std::string& backend, int size,
                          std::size_t element_bytes);

}  // namespace lockstep
