// Communicates tensors in host memory over a backend for device tensors, for example over NCCL
// between hosts whose ranks use shared memory.
#pragma once

#include <chrono>
#include <memory>

#include <torch/types.h>

#include <lockstep/comm/backends/backend.h>

namespace lockstep::through_device {

struct Options {
  torch::Device device = torch::kCPU;  ///< the device of `inner`'s tensors; the CPU in tests
  int rank = 0;                        ///< this rank's number in `inner`
  std::chrono::milliseconds timeout{0};
};

/// Creates a backend of the same ranks for tensors in host memory. Each call copies its inputs to
/// the device (through pinned memory, in a stream of its own) and starts the same call of `inner`
/// on the copies. The output is copied back when wait() or is_completed() finds the call complete,
/// so a Work that is dropped before that leaves its output unwritten. Calls that `inner` rejects
/// are rejected. abort() ends both backends.
std::shared_ptr<Backend> make(std::shared_ptr<Backend> inner, const Options& options);

}  // namespace lockstep::through_device
