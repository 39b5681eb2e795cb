// The spans of all ranks of a group as one file for trace viewers.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/comm/process_group.h>
#include <lockstep/trace/chrome_trace.h>

namespace lockstep {

/// Collective over `group`. Rank 0 writes what each rank gives as `spans`, a process of the trace
/// for each rank. The ranks of one host have one clock; those of several are as far apart as their
/// clocks. DataError, on all ranks, where the file can't be written.
void write_trace_of_ranks(const std::filesystem::path& path, const std::vector<Span>& spans,
                          ProcessGroup& group);

}  // namespace lockstep
