// Gloo, as LibTorch contains it: CPU tensors between hosts over TCP.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backend.h>
#include <lockstep/comm/worker_environment.h>

namespace lockstep::gloo {

/// Collective. `store` holds nothing but this group's; `environment` says which rank of it this is.
/// `interface_address` is this host's address that its peers can reach. Tensors on `device` are
/// communicated; those of a GPU only in a CUDA build of LibTorch. `world_ranks` are the members'
/// ranks in the first group, by which messages name them; empty: this is it.
std::shared_ptr<Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                 const WorkerEnvironment& environment,
                                 const std::string& interface_address, torch::Device device,
                                 std::chrono::milliseconds timeout,
                                 const std::vector<int>& world_ranks = {});

}  // namespace lockstep::gloo
