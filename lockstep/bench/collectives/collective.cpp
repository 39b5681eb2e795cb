#include <lockstep/bench/collectives/collective.h>

namespace lockstep::bench {

const char* bench_call_name(comm::CallKind kind) {
  return kind == comm::CallKind::kSend ? "send_recv" : comm::call_name(kind);
}

std::optional<comm::CallKind> bench_call_from_name(const std::string& name) {
  for (const comm::CallKind kind : all_bench_calls()) {
    if (name == bench_call_name(kind)) return kind;
  }
  return std::nullopt;
}

const std::vector<comm::CallKind>& all_bench_calls() {
  static const std::vector<comm::CallKind> kinds = {
      comm::CallKind::kAllReduce,     comm::CallKind::kBroadcast, comm::CallKind::kReduce,
      comm::CallKind::kAllGather,     comm::CallKind::kGather,    comm::CallKind::kScatter,
      comm::CallKind::kReduceScatter, comm::CallKind::kAllToAll,  comm::CallKind::kSend,
      comm::CallKind::kBarrier};
  return kinds;
}

std::vector<std::string> bench_call_names() {
  std::vector<std::string> names;
  for (const comm::CallKind kind : all_bench_calls()) names.emplace_back(bench_call_name(kind));
  return names;
}

bool is_divided(comm::CallKind kind) {
  switch (kind) {
    case comm::CallKind::kAllGather:
    case comm::CallKind::kGather:
    case comm::CallKind::kScatter:
    case comm::CallKind::kReduceScatter:
    case comm::CallKind::kAllToAll:
      return true;
    default:
      return false;
  }
}

bool is_in_place(comm::CallKind kind) {
  return kind == comm::CallKind::kAllReduce || kind == comm::CallKind::kBroadcast ||
         kind == comm::CallKind::kReduce;
}

double bus_factor(comm::CallKind kind, int ranks) {
  const double n = ranks;
  if (kind == comm::CallKind::kAllReduce) return 2 * (n - 1) / n;
  if (is_divided(kind)) return (n - 1) / n;
  return kind == comm::CallKind::kBarrier ? 0 : 1;
}

}  // namespace lockstep::bench
