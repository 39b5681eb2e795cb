// Adapts a backend of PyTorch's own library (c10d::Backend: Gloo, NCCL) to lockstep::Backend.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/backends/c10d/device_queries.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::c10d_adapter {

enum class Library { kGloo, kNccl };

struct AdapterOptions {
  Library library = Library::kGloo;
  std::chrono::milliseconds timeout{0};
  torch::Device device = torch::kCPU;  ///< holds the tensors
  std::vector<int> world_ranks{};      ///< the members, for messages; empty for the first group
  int store_rank = 0;                  ///< the rank that serves the store; -1: none of this group
  /// Called when this rank leaves the group while the store is alive. Deletes this rank's keys.
  std::function<void()> forget_keys{};
  /// Tags the library's next collective, so that it matches only the same call on other ranks.
  /// Empty if the library has no tags.
  std::function<void(std::uint32_t tag)> tag_next{};
  /// Advances this rank's other operations while it waits here. Null if there are none.
  std::shared_ptr<Progress> progress{};
  std::string own_address{};  ///< as in WatchdogOptions
  /// As in WatchdogOptions. Over NCCL, which has no connection whose state could be queried, a peer
  /// that has been silent for this time counts as dead. Zero: peers are waited for.
  std::chrono::milliseconds host_timeout{0};
  /// Queries the device whose streams run the library's operations. Not used over Gloo.
  std::shared_ptr<DeviceQueries> device_queries = std::make_shared<DeviceQueries>();
};

/// The rank that serves the store, in a group with these members.
int store_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks);
/// The number of this rank in error messages, in a group with these members.
int world_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks);

/// `store` must belong to this group alone. See Watchdog for its use.
std::shared_ptr<Backend> make(c10::intrusive_ptr<c10d::Backend> backend,
                              c10::intrusive_ptr<c10d::Store> store, AdapterOptions options);

}  // namespace lockstep::c10d_adapter
