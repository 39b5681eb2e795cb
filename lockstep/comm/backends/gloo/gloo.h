// LibTorch's Gloo as a backend: CPU tensors between hosts over TCP.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/backends/c10d/adapter_options.h>
#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep::gloo {

/// Collective. `store` holds only this group's keys. `environment` gives this rank's number in the
/// group. `interface_address` is the address of this host at which its peers can reach it. The
/// backend communicates tensors on `device`, which may be a GPU only in a CUDA build of LibTorch.
/// `world_ranks` are the members' ranks in the first group, used in error messages; empty if this
/// is the first group. `host_timeout` is that of ProcessGroupOptions; if zero, a silent host is
/// waited for until `timeout`.
std::shared_ptr<comm::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                       const WorkerEnvironment& environment,
                                       const std::string& interface_address, torch::Device device,
                                       std::chrono::milliseconds timeout,
                                       const std::vector<int>& world_ranks = {},
                                       c10d_adapter::Meanwhile meanwhile = {},
                                       std::chrono::milliseconds host_timeout = {});

}  // namespace lockstep::gloo
