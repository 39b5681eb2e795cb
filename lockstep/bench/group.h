// Agreement and synchronization among the ranks of a measurement.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <lockstep/comm/group/process_group.h>

namespace lockstep::bench {

/// Returns a group whose barrier starts the ranks at nearly the same time. If all ranks are on one
/// host, the returned group uses shared memory, and ranks leave its barrier within microseconds of
/// each other; otherwise it is `group` itself. Collective.
ProcessGroup make_start_line(ProcessGroup group, std::chrono::milliseconds timeout);

/// Returns rank 0's value on all ranks. Collective.
std::int64_t agree(ProcessGroup& group, std::int64_t value);

/// Returns every rank's values: result[r][i] is `values[i]` of rank r. All ranks must pass the same
/// number of values. Collective.
std::vector<std::vector<double>> gather_all(ProcessGroup& group, const std::vector<double>& values);

}  // namespace lockstep::bench
