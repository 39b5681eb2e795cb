// The calls that `lockstep bench comm` times, and the definitions of their figures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/call/description.h>

namespace lockstep::bench {

/// call_name(kind), except for kSend: it stands for both ends of a message and is called
/// "send_recv".
const char* bench_call_name(CallKind kind);
std::optional<CallKind> bench_call_from_name(const std::string& name);
/// The collectives, and kSend for a message from rank 0 to rank 1. Its two ends cannot be measured
/// separately, so kRecv is not in the list.
const std::vector<CallKind>& all_bench_calls();
/// The names of all_bench_calls().
std::vector<std::string> bench_call_names();

/// Whether a rank's input or output is only its share of the larger buffer.
bool is_divided(CallKind kind);

/// Whether the result replaces the input.
bool is_in_place(CallKind kind);

/// The ratio of bus bandwidth to algorithm bandwidth (bytes of the larger buffer over time), as in
/// nccl-tests' PERFORMANCE.md. Bus bandwidth is the traffic on a rank's links, and is independent
/// of the number of ranks. 0 for a barrier.
double bus_factor(CallKind kind, int ranks);

}  // namespace lockstep::bench
