// A backend for several hosts, some with several ranks. It communicates through shared memory
// inside a host, and over the network between the leaders, which are the hosts' first ranks.
//
// A collective has three stages: up (inside each host, to its leader), across (between the leaders)
// and down (inside each host, from its leader). Only the across stage uses the network, with one
// message per host instead of one per rank.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::hierarchical {

/// The location of a rank. Hosts are numbered from 0, and the leader of host h is rank h of the
/// leaders' group.
struct RankLocation {
  int host = 0;
  int local_rank = 0;  ///< 0: the leader
};

struct Parts {
  int rank = 0;
  std::vector<RankLocation> locations;  ///< the locations of all ranks
  /// The group of this host's ranks, numbered by local rank; a group of one if this rank is alone.
  std::shared_ptr<comm::Backend> local;
  /// The group of the leaders, numbered by host; null on other ranks, and if there is only one
  /// host.
  std::shared_ptr<comm::Backend> leaders;
  /// The group of all ranks over the network, for messages between hosts and operations without
  /// stages. With Gloo, its watchdog detects ranks that died or stopped on another host.
  std::shared_ptr<comm::Backend> flat;
  /// The operations that this process has under way in all groups; may be null.
  std::shared_ptr<comm::Progress> progress;
  std::chrono::milliseconds timeout{0};
};

/// The caller must not start other collectives on the parts. A receive from any rank throws
/// ConfigError: it would have to post a receive on both transports, and neither can cancel its
/// receive once the other has completed. The remaining receive would then take a message that is
/// meant for a later one. Gloo has no probe either, and its only way to cancel, a deadline, closes
/// all connections of the group. A group over Gloo alone supports such receives:
/// ProcessGroup::new_group(ranks, "gloo").
std::shared_ptr<comm::Backend> make(Parts parts);

}  // namespace lockstep::hierarchical
