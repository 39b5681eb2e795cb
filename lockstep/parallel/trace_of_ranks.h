// The spans of all ranks of a group as one file for trace viewers.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/comm/process_group.h>
#include <lockstep/trace/chrome_trace.h>

namespace lockstep {

/// Collective over `group`. Rank 0 writes the spans of all ranks to `path`; each rank is a process
/// of the trace. Times are those of each host's monotonic clock, which begins when the host boots.
/// DataError, on all ranks, where a rank's spans cannot be put into text or the file cannot be
/// written.
void write_trace_of_ranks(const std::filesystem::path& path, const std::vector<Span>& spans,
                          ProcessGroup& group);

}  // namespace lockstep
