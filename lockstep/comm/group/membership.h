// Describes a rank's membership in a group before the group has a backend.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/call/process_group_options.h>
#include <lockstep/comm/diagnostics/flight_recorder.h>
#include <lockstep/comm/group/peer_info.h>
#include <lockstep/comm/rendezvous/text_exchange.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::comm {

/// Made by one function for each origin of a group: init_process_group() (init.cpp), join_store()
/// (join_store.cpp), and another group (subgroups.cpp).
struct Membership {
  std::string name;  ///< "world", "world/3.0": equal on all members, unique to this group
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::vector<int> world_ranks;          ///< ranks of all members in the first group, by rank
  std::vector<PeerInfo> peers;           ///< all members, this rank included, by rank
  std::optional<TextExchange> exchange;  ///< empty in a group of one
  /// Address of this host for connections from peers; empty in a group of one, and with a problem.
  std::string own_address;
  /// Why a rank of the first group has no such address; equal on all members. Empty: each has one.
  std::string address_problem;
  bool foreign_store = false;  ///< the store is served outside of these ranks
  ProcessGroupOptions options;
  // Shared by a first group and all groups made from it.
  std::shared_ptr<Progress> progress;
  std::shared_ptr<FlightRecorder> recorder;
  /// The parent group over NCCL whose communicator may be split to make this group's; null if there
  /// is none.
  std::shared_ptr<Backend> parent;
  int color = 0;  ///< passed to the split
  /// Called repeatedly while the members connect. Throws once the parent group has ended. Empty in
  /// a first group, and once the group is connected.
  std::function<void()> check;

  int world_rank() const { return world_ranks[static_cast<std::size_t>(rank)]; }
  /// The ranks of these members in the first group.
  std::vector<int> named(const std::vector<int>& members) const;
};

/// A rank's number among the members on its host, and their count.
struct LocalPlace {
  int rank = 0;
  int size = 1;
};
LocalPlace local_place(const std::vector<PeerInfo>& peers, int rank);

}  // namespace lockstep::comm
