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
  torch::Device device = torch::kCPU;  ///< of the tensors
  std::vector<int> world_ranks{};  ///< of the members, for messages; empty: this is the first group
  int store_rank = 0;              ///< who serves the store; -1: none of this group
  /// Called when this rank leaves the group while the store is alive: deletes what it left there.
  std::function<void()> forget_keys{};
  /// Gives the library's next collective a tag, so that only ranks that call the same meet; empty
  /// where the library has no tags.
  std::function<void(std::uint32_t tag)> tag_next{};
  /// This rank's other operations, which progress while it waits here; null if there are none.
  std::shared_ptr<Progress> progress{};
  std::string own_address{};  ///< as in WatchdogOptions
  /// As in WatchdogOptions. Over NCCL: the silence after which a peer is dead, for there is no
  /// connection whose state could be queried. Zero: peers are waited for.
  std::chrono::milliseconds host_timeout{0};
  /// Queries the device in whose streams the library runs. Not used for Gloo's operations.
  std::shared_ptr<DeviceQueries> device_queries = std::make_shared<DeviceQueries>();
};

/// The rank that serves the store, in a group with these members.
int store_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks);
/// The number by which messages name this rank, in a group with these members.
int world_rank(const WorkerEnvironment& environment, const std::vector<int>& world_ranks);

/// `store` is this group's alone; see Watchdog for what it is used for.
std::shared_ptr<Backend> make(c10::intrusive_ptr<c10d::Backend> backend,
                              c10::intrusive_ptr<c10d::Store> store, AdapterOptions options);

}  // namespace lockstep::c10d_adapter
