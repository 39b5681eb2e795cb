// Agreement and synchronization among the ranks of a measurement.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <lockstep/comm/group/process_group.h>

namespace lockstep {

/// A group with the ranks of `group` that meets in shared memory if all are on one host; otherwise
/// `group` itself. Ranks leave its barrier within microseconds of each other. Collective.
ProcessGroup make_start_line(ProcessGroup group, std::chrono::milliseconds timeout);

/// Returns rank 0's value on all ranks. Collective.
std::int64_t agree(ProcessGroup& group, std::int64_t value);

/// rows[r][i] is `values[i]` of rank r. The number of values must be equal on all ranks.
/// Collective.
std::vector<std::vector<double>> gather_all(ProcessGroup& group, const std::vector<double>& values);

}  // namespace lockstep
