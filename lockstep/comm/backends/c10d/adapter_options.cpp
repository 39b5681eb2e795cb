#include <lockstep/comm/backends/c10d/adapter_options.h>

#include <algorithm>

namespace lockstep::c10d_adapter {

int store_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks) {
  if (environment.agent_store) return -1;  // the launcher serves it
  if (world_ranks.empty()) return 0;
  const auto first = std::find(world_ranks.begin(), world_ranks.end(), 0);
  return first == world_ranks.end() ? -1 : static_cast<int>(first - world_ranks.begin());
}

int world_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks) {
  return world_ranks.empty() ? environment.rank
                             : world_ranks[static_cast<std::size_t>(environment.rank)];
}

}  // namespace lockstep::c10d_adapter
