#include <lockstep/comm/group/membership.h>

#include <algorithm>

#include <lockstep/core/error.h>

namespace lockstep::comm {

std::vector<int> Membership::named(const std::vector<int>& members) const {
  std::vector<int> names;
  for (const int member : members) names.push_back(world_ranks[static_cast<std::size_t>(member)]);
  return names;
}

LocalPlace local_place(const std::vector<PeerInfo>& peers, int rank) {
  for (const auto& host : ranks_by_host(peers)) {
    const auto place = std::find(host.begin(), host.end(), rank);
    if (place == host.end()) continue;
    return {static_cast<int>(place - host.begin()), static_cast<int>(host.size())};
  }
  throw InternalError(lockstep::str("rank ", rank, " is on no host"));
}

}  // namespace lockstep::comm
