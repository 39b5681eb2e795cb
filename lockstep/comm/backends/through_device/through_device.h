// Communicates tensors in host memory over a backend for device tensors: NCCL between hosts whose
// ranks meet in shared memory.
#pragma once

#include <chrono>
#include <memory>

#include <torch/types.h>

#include <lockstep/comm/backends/backend.h>

namespace lockstep::through_device {

struct Options {
  torch::Device device = torch::kCPU;  ///< where `inner` communicates; a CPU too, for tests
  int rank = 0;                        ///< in `inner`
  std::chrono::milliseconds timeout{0};
};

/// A backend of the same ranks for tensors in host memory: each call copies what is read to the
/// device (through pinned memory, in a stream of its own), starts the same call of `inner` on
/// the copies, and brings back what it wrote when its Work is found complete. A Work that is
/// dropped before that leaves its output unwritten. What `inner` refuses is refused; after
/// abort() both have ended.
std::shared_ptr<Backend> make(std::shared_ptr<Backend> inner, const Options& options);

}  // namespace lockstep::through_device
