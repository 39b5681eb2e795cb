// The collectives and messages of a rank as spans of a trace.
#pragma once

#include <vector>

#include <lockstep/comm/call/recorded_call.h>
#include <lockstep/trace/span.h>

namespace lockstep {

/// A span for each call, which names the group's collective, or its message, for its match on the
/// other ranks. Calls that go on at the same time stand on tracks of their own: "calls", "calls 2",
/// ... `calls` come by their beginnings. Left out is a call within one of the spans `shown` that
/// names a collective: a bucket's reduction tells more than the call that it makes.
std::vector<Span> spans_of_calls(const std::vector<RecordedCall>& calls,
                                 const std::vector<Span>& shown);

}  // namespace lockstep
