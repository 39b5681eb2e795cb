#include <lockstep/comm/membership.h>

#include <algorithm>

namespace lockstep {

void Membership::find_local_place() {
  for (const auto& host : ranks_by_host(profiles)) {
    const auto place = std::find(host.begin(), host.end(), rank);
    if (place == host.end()) continue;
    local_rank = static_cast<int>(place - host.begin());
    local_size = static_cast<int>(host.size());
  }
}

}  // namespace lockstep
