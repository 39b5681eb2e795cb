// The options that the adapters of PyTorch's libraries get when a group is made.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::c10d_adapter {

struct AdapterOptions {
  std::chrono::milliseconds timeout{0};
  torch::Device device = torch::kCPU;  ///< holds the tensors
  std::vector<int> world_ranks{};      ///< as in WatchdogOptions
  int store_rank = 0;                  ///< the rank that serves the store; -1: none of this group
  /// Called when this rank leaves the group while the store is alive. Deletes this rank's keys.
  std::function<void()> forget_keys{};
  std::string own_address{};  ///< as in WatchdogOptions
  /// As in WatchdogOptions. With a library that has no connection whose state could be queried, a
  /// peer that has been silent for this time counts as dead. Zero: no peer ever does.
  std::chrono::milliseconds host_timeout{0};
};

/// What a rank does while it waits in a library for its peers to connect.
struct Meanwhile {
  std::shared_ptr<comm::Progress> progress{};  ///< advances its other operations; may be null
  /// Called repeatedly; may throw to abandon the attempt. May be empty.
  std::function<void()> check{};

  void look() const {
    if (progress) progress->advance(nullptr);
    if (check) check();
  }
};

/// The rank that serves the store, in a group with these members.
int store_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks);
/// The number of this rank in error messages, in a group with these members.
int world_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks);

}  // namespace lockstep::c10d_adapter
