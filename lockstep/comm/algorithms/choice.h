// Chooses the all-reduce algorithm and its chunk size from measurements. Does not depend on
// LibTorch.
#pragma once

#include <cstddef>

#include <lockstep/comm/call/algorithm.h>
#include <lockstep/comm/call/backend_traits.h>

namespace lockstep::comm {

/// The algorithm behind kAuto for `bytes` of one rank's tensor: kNative, or one of the algorithms
/// over point-to-point messages if that is faster. `gathers` says whether the backend gathers the
/// inputs of all ranks instead of reducing them (Backend::gathers_to_reduce). The underlying
/// measurements are in docs/algorithms.md.
Algorithm choose_algorithm(bool gathers, int ranks, std::size_t bytes);

/// Number of elements per chunk (ScheduleRequest::chunk); 0 for algorithms without chunks.
std::size_t default_chunk(Algorithm algorithm, const BackendTraits& backend, int size,
                          std::size_t element_bytes);

}  // namespace lockstep::comm
