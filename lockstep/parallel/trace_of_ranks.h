// The spans of all ranks of a group as one file for trace viewers.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/comm/process_group.h>
#include <lockstep/trace/span.h>

namespace lockstep {

/// Collective over `group`. How this rank's monotonic clock compares with rank 0's, from some barriers
/// (see clock_offset()).
ClockOffset measure_clock_offset(ProcessGroup& group);

/// Collective over `group`. Rank 0 writes the spans of all ranks to `path` (see write_chrome_trace());
/// each rank is a process of the trace. Times are those of rank 0's monotonic clock, with offsets
/// that are measured now.
/// DataError, on all ranks, where a rank's spans cannot be put into text or the file cannot be
/// written.
void write_trace_of_ranks(const std::filesystem::path& path, const std::vector<Span>& spans,
                          ProcessGroup& group);

}  // namespace lockstep
