// The collectives and messages of a rank as spans of a trace.
#pragma once

#include <vector>

#include <lockstep/comm/call/recorded_call.h>
#include <lockstep/core/trace/span.h>

namespace lockstep::parallel {

/// Returns a span for each call. Each span identifies its group's collective or message, so that it
/// can be matched with the spans of other ranks. Concurrent calls are on separate tracks: "calls",
/// "calls 2", ... `calls` must be ordered by start time. A call inside a span of `shown` that names
/// a collective is omitted, because that span, such as a bucket's reduction, is more informative
/// than the call.
std::vector<Span> spans_of_calls(const std::vector<RecordedCall>& calls,
                                 const std::vector<Span>& shown);

}  // namespace lockstep::parallel
