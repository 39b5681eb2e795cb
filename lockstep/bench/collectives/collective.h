// The calls that `lockstep bench comm` times, and the definitions of their figures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/call/description.h>

namespace lockstep::bench {

/// call_name(), except that kSend, which stands for both ends of a message, is "send_recv".
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

/// The factor from algorithm bandwidth (bytes of the larger buffer over time) to bus bandwidth,
/// which is the traffic on a rank's links and independent of the number of ranks; as in nccl-tests'
/// PERFORMANCE.md. 0 for a barrier.
double bus_factor(CallKind kind, int ranks);

}  // namespace lockstep::bench
