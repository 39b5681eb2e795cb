// Writes the spans of all ranks of a group to one file for trace viewers.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/trace/span.h>

namespace lockstep {

/// Collective over `group`. Measures the offset of this rank's monotonic clock from rank 0's with a
/// few barriers (see clock_offset()).
ClockOffset measure_clock_offset(ProcessGroup& group);

/// Collective over `group`. Ends the recording of this process (stop_recording()), and writes the
/// events of all ranks since `from`, like write_trace_of_ranks(): the recorded spans, those of
/// `more`, and the collectives and messages of the ranks' groups (spans_of_calls()). DataError as
/// there.
void write_recording(const std::filesystem::path& path, Clock::time_point from,
                     const std::vector<Span>& more, ProcessGroup& group);

/// Collective over `group`. Rank 0 writes the spans of all ranks to `path` (see
/// write_chrome_trace()); each rank is a process of the trace. Times are those of rank 0's
/// monotonic clock, with offsets measured during the call. DataError, on all ranks, if a rank's
/// spans cannot be serialized or the file cannot be written.
void write_trace_of_ranks(const std::filesystem::path& path, const std::vector<Span>& spans,
                          ProcessGroup& group);

}  // namespace lockstep
