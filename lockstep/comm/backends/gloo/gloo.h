// Gloo, as LibTorch contains it: CPU tensors between hosts over TCP.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/comm/waiting/progress.h>

namespace lockstep::gloo {

/// What a rank does while it waits for its peers.
struct Meanwhile {
  std::shared_ptr<Progress> progress;  ///< moves its other operations; null: there are none
  /// Called repeatedly while the ranks connect; may throw to abandon the attempt. May be empty.
  std::function<void()> check;
};

/// Collective. `store` holds only this group's keys; `environment` gives this rank's number in it.
/// `interface_address` is this host's address that its peers can reach. Tensors on `device` are
/// communicated; those of a GPU only in a CUDA build of LibTorch. `world_ranks` are the members'
/// ranks in the first group, by which messages name them; empty: this is it. `host_timeout`: as in
/// ProcessGroupOptions; zero where hosts are always waited for.
std::shared_ptr<Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                 const WorkerEnvironment& environment,
                                 const std::string& interface_address, torch::Device device,
                                 std::chrono::milliseconds timeout,
                                 const std::vector<int>& world_ranks = {}, Meanwhile meanwhile = {},
                                 std::chrono::milliseconds host_timeout = {});

}  // namespace lockstep::gloo
