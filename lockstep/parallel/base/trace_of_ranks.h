// Writes the spans of all ranks of a group to one file for trace viewers.
#pragma once

#include <filesystem>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/trace/span.h>

namespace lockstep::parallel {

/// Collective over `group`. Uses a few barriers to measure the offset of this rank's monotonic
/// clock from that of rank 0 (see clock_offset()).
ClockOffset measure_clock_offset(ProcessGroup& group);

/// Collective over `group`. Stops the recording in this process (stop_recording()), and writes what
/// all ranks have done since `from` with write_trace_of_ranks(): the recorded spans, the spans
/// `more`, and the collectives and messages of `group`, of the first group and of all groups made
/// from the first (ProcessGroup::recorded_calls(), spans_of_calls()). Throws DataError like
/// write_trace_of_ranks().
void write_recording(const std::filesystem::path& path, Clock::time_point from,
                     const std::vector<Span>& more, ProcessGroup& group);

/// Collective over `group`. Rank 0 writes the spans of all ranks to `path` (see
/// write_chrome_trace()), where each rank appears as a process. Times are converted to rank 0's
/// monotonic clock with the offsets that this call measures. Throws DataError, on all ranks, if the
/// file cannot be written.
void write_trace_of_ranks(const std::filesystem::path& path, const std::vector<Span>& spans,
                          ProcessGroup& group);

}  // namespace lockstep::parallel
