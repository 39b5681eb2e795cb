// What the ranks of a measurement agree on, and how they start together.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <lockstep/comm/group/process_group.h>

namespace lockstep {

/// A group of the same ranks that meets in shared memory, where all are on one host; else `group`
/// itself. Ranks that leave its barrier do so within microseconds. Collective.
ProcessGroup make_start_line(ProcessGroup group, std::chrono::milliseconds timeout);

/// The same value on all ranks: rank 0's. Collective.
std::int64_t agree(ProcessGroup& group, std::int64_t value);

/// rows[r][i]: `values[i]` of rank r. As many on all ranks. Collective.
std::vector<std::vector<double>> gather_all(ProcessGroup& group, const std::vector<double>& values);

}  // namespace lockstep
