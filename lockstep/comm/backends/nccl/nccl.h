// NCCL, as LibTorch's ProcessGroupNCCL runs it: CUDA tensors between GPUs. Builds without CUDA link
// no_nccl.cpp in place of nccl.cpp.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep::nccl {

bool is_available();

/// A globally unique identifier of a GPU; empty in builds without NCCL.
std::string device_identity(torch::Device device);

/// Whether the calling thread's current stream of a GPU is being captured into a CUDA graph. False
/// for other devices, and in builds without NCCL.
bool is_captured(torch::Device device);

/// How a group's communicator is created.
struct Communicator {
  /// Whether its kernels run in a high-priority stream, ahead of queued kernels of a backward pass.
  bool high_priority = false;
  /// A group over NCCL that has all these ranks and from whose communicator this one is split: all
  /// of its ranks call connect() or leave_split() at the same time, and none of its operations may
  /// be under way. Null: a communicator is made from nothing, which takes longer.
  std::shared_ptr<Backend> parent = nullptr;
  int color = 0;  ///< of a split: the same on the ranks of a new group, not negative
};

/// Collective. `device` is the GPU of this rank, which no other rank may use; the other parameters
/// are those of gloo::connect. ConfigError in builds without NCCL. All ranks must come.
///
/// Differences from other backends: a Work's wait() without a timeout makes the current stream
/// wait, unless it is a barrier's. Whether the operation then ends on the device is watched: at the
/// group's timeout, and when a peer has given no sign of life for `host_timeout`, the group ends,
/// the kernels with it, and the next call throws. Messages ignore their tags: two ranks receive in
/// the order in which they sent. Those of a batch are one group of NCCL's and end together.
std::shared_ptr<Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                 const WorkerEnvironment& environment, torch::Device device,
                                 std::chrono::milliseconds timeout,
                                 const std::vector<int>& world_ranks = {},
                                 std::chrono::milliseconds host_timeout = std::chrono::seconds(10),
                                 const Communicator& communicator = {});

/// Collective over the ranks of `parent`, a group over NCCL: takes part in a split on a rank that
/// is in none of the new groups.
void leave_split(Backend& parent, torch::Device device);

}  // namespace lockstep::nccl
