#include <lockstep/bench/collectives/collective.h>

namespace lockstep {

const char* bench_collective_name(BenchCollective collective) {
  switch (collective) {
    case BenchCollective::kAllReduce:
      return "all_reduce";
    case BenchCollective::kBroadcast:
      return "broadcast";
    case BenchCollective::kReduce:
      return "reduce";
    case BenchCollective::kAllGather:
      return "all_gather";
    case BenchCollective::kGather:
      return "gather";
    case BenchCollective::kScatter:
      return "scatter";
    case BenchCollective::kReduceScatter:
      return "reduce_scatter";
    case BenchCollective::kAllToAll:
      return "all_to_all";
    case BenchCollective::kSendRecv:
      return "send_recv";
    case BenchCollective::kBarrier:
      return "barrier";
  }
  return "?";
}

std::optional<BenchCollective> bench_collective_from_name(const std::string& name) {
  for (const BenchCollective collective : all_bench_collectives()) {
    if (name == bench_collective_name(collective)) return collective;
  }
  return std::nullopt;
}

const std::vector<BenchCollective>& all_bench_collectives() {
  static const std::vector<BenchCollective> collectives = {
      BenchCollective::kAllReduce,     BenchCollective::kBroadcast, BenchCollective::kReduce,
      BenchCollective::kAllGather,     BenchCollective::kGather,    BenchCollective::kScatter,
      BenchCollective::kReduceScatter, BenchCollective::kAllToAll,  BenchCollective::kSendRecv,
      BenchCollective::kBarrier};
  return collectives;
}

std::vector<std::string> bench_collective_names() {
  std::vector<std::string> names;
  for (const BenchCollective collective : all_bench_collectives()) {
    names.emplace_back(bench_collective_name(collective));
  }
  return names;
}

bool is_divided(BenchCollective collective) {
  switch (collective) {
    case BenchCollective::kAllGather:
    case BenchCollective::kGather:
    case BenchCollective::kScatter:
    case BenchCollective::kReduceScatter:
    case BenchCollective::kAllToAll:
      return true;
    default:
      return false;
  }
}

bool is_in_place(BenchCollective collective) {
  return collective == BenchCollective::kAllReduce || collective == BenchCollective::kBroadcast ||
         collective == BenchCollective::kReduce;
}

double bus_factor(BenchCollective collective, int ranks) {
  const double n = ranks;
  if (collective == BenchCollective::kAllReduce) return 2 * (n - 1) / n;
  if (is_divided(collective)) return (n - 1) / n;
  return collective == BenchCollective::kBarrier ? 0 : 1;
}

}  // namespace lockstep
