// What each rank of `lockstep bench comm` does.
#pragma once

#include <cstdint>

#include <lockstep/cli/bench_comm_settings.h>
#include <lockstep/comm/process_group.h>

namespace lockstep {

/// Joins the group and measures; rank 0 prints and writes files. Throws what goes wrong.
void bench_comm_rank(const BenchCommSettings& settings);

/// A group of the same ranks that meets in shared memory, where all are on one host; else `group`
/// itself. Ranks that leave its barrier do so within microseconds. Collective.
ProcessGroup make_start_line(ProcessGroup group, std::chrono::milliseconds timeout);

/// The same value on all ranks: rank 0's. Collective.
std::int64_t agree(ProcessGroup& group, std::int64_t value);

/// rows[r][i]: `values[i]` of rank r. As many on all ranks. Collective.
std::vector<std::vector<double>> gather_all(ProcessGroup& group, const std::vector<double>& values);

}  // namespace lockstep
