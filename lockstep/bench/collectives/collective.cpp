#include <lockstep/bench/collectives/collective.h>

namespace lockstep::bench {

const char* bench_call_name(CallKind kind) {
  return kind == CallKind::kSend ? "send_recv" : call_name(kind);
}

std::optional<CallKind> bench_call_from_name(const std::string& name) {
  for (const CallKind kind : all_bench_calls()) {
    if (name == bench_call_name(kind)) return kind;
  }
  return std::nullopt;
}

const std::vector<CallKind>& all_bench_calls() {
  static const std::vector<CallKind> kinds = {
      CallKind::kAllReduce, CallKind::kBroadcast, CallKind::kReduce,        CallKind::kAllGather,
      CallKind::kGather,    CallKind::kScatter,   CallKind::kReduceScatter, CallKind::kAllToAll,
      CallKind::kSend,      CallKind::kBarrier};
  return kinds;
}

std::vector<std::string> bench_call_names() {
  std::vector<std::string> names;
  for (const CallKind kind : all_bench_calls()) names.emplace_back(bench_call_name(kind));
  return names;
}

bool is_divided(CallKind kind) {
  switch (kind) {
    case CallKind::kAllGather:
    case CallKind::kGather:
    case CallKind::kScatter:
    case CallKind::kReduceScatter:
    case CallKind::kAllToAll:
      return true;
    default:
      return false;
  }
}

bool is_in_place(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kBroadcast || kind == CallKind::kReduce;
}

double bus_factor(CallKind kind, int ranks) {
  const double n = ranks;
  if (kind == CallKind::kAllReduce) return 2 * (n - 1) / n;
  if (is_divided(kind)) return (n - 1) / n;
  return kind == CallKind::kBarrier ? 0 : 1;
}

}  // namespace lockstep::bench
