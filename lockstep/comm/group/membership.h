// What makes a rank a member of a group, before the group has a backend.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/call/process_group_options.h>
#include <lockstep/comm/diagnostics/flight_recorder.h>
#include <lockstep/comm/group/profile.h>
#include <lockstep/comm/rendezvous/text_exchange.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep {

struct Membership {
  std::string name;  ///< "world", "world/3.0": the same on all members, and no other group's
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::vector<int> world_ranks;          ///< of all members
  std::vector<Profile> profiles;         ///< of all members
  std::optional<TextExchange> exchange;  ///< nothing in a group of one
  std::string own_address;               ///< of this host, for connections from its peers
  bool foreign_store = false;            ///< none of the ranks serves the store
  ProcessGroupOptions options;
  // Shared by a first group and those made from it.
  std::shared_ptr<Progress> progress;
  std::shared_ptr<FlightRecorder> recorder;
  /// The group over NCCL from whose communicator this group's may be split; null without one.
  std::shared_ptr<Backend> parent;
  int color = 0;  ///< in the split
  /// Called again and again while the members connect: throws once the group that this one is made
  /// from has ended. Empty in a first group, and in one that is connected.
  std::function<void()> check;

  int world_rank() const { return world_ranks[static_cast<std::size_t>(rank)]; }
  /// The world's ranks of these members.
  std::vector<int> named(const std::vector<int>& members) const;
  /// local_rank and local_size from the profiles.
  void find_local_place();
};

}  // namespace lockstep
