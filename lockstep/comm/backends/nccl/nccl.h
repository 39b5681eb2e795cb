// NCCL as a backend, through LibTorch's ProcessGroupNCCL: CUDA tensors between GPUs. Builds without
// CUDA link no_nccl.cpp in place of nccl.cpp.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/backend.h>
#include <lockstep/comm/backends/c10d/adapter_options.h>
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
  /// The group over NCCL from whose communicator this one is split. It must contain all ranks of
  /// the new group. All of the parent's ranks must call connect() or leave_split() at the same
  /// time, while none of its operations is under way. Null: a new communicator is created, which
  /// takes longer.
  std::shared_ptr<comm::Backend> parent = nullptr;
  int color = 0;  ///< color of the split: not negative, equal on all ranks of a new group
};

/// Collective: all ranks must call it. `device` is the GPU of this rank, which no other rank may
/// use, unless the environment allows it (gpu_sharing.h); the other parameters are those of
/// gloo::connect. Throws ConfigError in builds without NCCL. When this rank has thrown CommError or
/// TimeoutError, it may still be in a call of NCCL, which also uses `communicator.parent`.
///
/// Differences from other backends:
/// - A Work's wait() without a timeout makes the current stream wait instead of the calling thread,
///   except for a barrier. A watchdog then monitors the operation on the device: at the group's
///   timeout, or when a peer has given no sign of life for `host_timeout`, it ends the group and
///   its kernels, and the next call throws.
/// - Message tags are ignored: a rank receives a peer's messages in the order in which they were
///   sent. The messages of a batch are one NCCL group and complete together.
std::shared_ptr<comm::Backend> connect(
    const c10::intrusive_ptr<c10d::Store>& store, const WorkerEnvironment& environment,
    torch::Device device, std::chrono::milliseconds timeout,
    const std::vector<int>& world_ranks = {},
    std::chrono::milliseconds host_timeout = std::chrono::seconds(10),
    const Communicator& communicator = {}, const c10d_adapter::Meanwhile& meanwhile = {});

/// Collective over the ranks of `parent`, a group over NCCL. Takes part in a split when this rank
/// is in none of the new groups. `world_rank` is its rank in the first group, for error messages.
/// Throws CommError if NCCL reports an error, and TimeoutError if not all ranks take part before
/// `timeout`.
void leave_split(const std::shared_ptr<comm::Backend>& parent, int world_rank, torch::Device device,
                 std::chrono::milliseconds timeout, const c10d_adapter::Meanwhile& meanwhile);

}  // namespace lockstep::nccl
