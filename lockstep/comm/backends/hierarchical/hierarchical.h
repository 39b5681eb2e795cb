// A backend for several hosts, some with several ranks: shared memory inside a host, and the
// network between one leader per host (its first rank).
//
// Collectives go up (inside each host, to its leader), across (between the leaders) and down (from
// the leader). Only across uses the network, with one message per host instead of one per rank.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::hierarchical {

/// Where a rank is. Hosts are numbered from 0, and the leader of host h is rank h among the
/// leaders.
struct Place {
  int host = 0;
  int local_rank = 0;  ///< 0: the leader
};

struct Parts {
  int rank = 0;
  std::vector<Place> places;  ///< of all ranks
  std::shared_ptr<Backend>
      local;  ///< the ranks of this host, by local rank; a group of one if alone
  std::shared_ptr<Backend>
      leaders;  ///< the leaders, by host; null on other ranks and with one host
  /// All ranks, over the network, for messages between hosts and operations without stages. With
  /// Gloo, its watchdog detects ranks that died or stopped on another host.
  std::shared_ptr<Backend> flat;
  /// The operations that this process has under way in all groups; may be null.
  std::shared_ptr<Progress> progress;
  std::chrono::milliseconds timeout{0};
};

/// No other collective may be started on the parts. Receiving from any rank throws ConfigError: it
/// would have to post a receive on both transports, and neither can cancel its receive once the
/// other has completed. That receive would then take a later message meant for another receive.
/// Gloo has no probe either, and its only cancellation, a deadline, closes all connections of the
/// group. A group over Gloo alone supports it: ProcessGroup::new_group(ranks, "gloo").
std::shared_ptr<Backend> make(Parts parts);

}  // namespace lockstep::hierarchical
