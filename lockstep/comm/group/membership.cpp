#include <lockstep/comm/group/membership.h>

#include <algorithm>

namespace lockstep {

std::vector<int> Membership::named(const std::vector<int>& members) const {
  std::vector<int> names;
  for (const int member : members) names.push_back(world_ranks[static_cast<std::size_t>(member)]);
  return names;
}

void Membership::find_local_place() {
  for (const auto& host : ranks_by_host(peers)) {
    const auto place = std::find(host.begin(), host.end(), rank);
    if (place == host.end()) continue;
    local_rank = static_cast<int>(place - host.begin());
    local_size = static_cast<int>(host.size());
  }
}

}  // namespace lockstep
