// NCCL, as LibTorch's ProcessGroupNCCL runs it: CUDA tensors between GPUs. Builds without CUDA link
// no_nccl.cpp in place of nccl.cpp.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backend.h>
#include <lockstep/comm/worker_environment.h>

namespace lockstep::nccl {

bool is_available();

/// What tells a GPU from all others in the world; empty in builds without NCCL.
std::string device_identity(torch::Device device);

/// Collective. `device` is the GPU of this rank, which no other rank may use; the other parameters
/// are those of gloo::connect. ConfigError in builds without NCCL. All ranks must come.
///
/// What differs from other backends: a Work's wait() without a timeout makes the current stream
/// wait, and an operation that no wait() ends in time is ended by LibTorch's own watchdog, with the
/// process. Messages ignore their tags: two ranks receive in the order in which they sent. Those of
/// a batch are one group of NCCL's and end together.
std::shared_ptr<Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                 const WorkerEnvironment& environment, torch::Device device,
                                 std::chrono::milliseconds timeout,
                                 const std::vector<int>& world_ranks = {});

}  // namespace lockstep::nccl
