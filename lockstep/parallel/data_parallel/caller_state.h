// What a thread has set for itself, carried to the threads of the replicas.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include <lockstep/parallel/autocast_type_scope.h>

namespace lockstep::data_parallel {

/// The thread-local state of the thread that makes it: gradient and inference mode, autocast, hooks
/// for saved tensors, the profiler; on GPUs also the current stream of each device, on which the
/// replica's work is then queued, as PyTorch's parallel_apply does it.
class CallerState {
 public:
  explicit CallerState(const std::vector<torch::Device>& devices);

  /// While it lives, this thread works for the one that made the state, on the device `replica`.
  class Scope {
   public:
    Scope(const CallerState& state, std::size_t replica);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    at::ThreadLocalStateGuard state_;
    AutocastTypeScope cast_type_;
    bool former_cache_;
    c10::OptionalStreamGuard stream_;
  };

 private:
  at::ThreadLocalState state_;
  // What ThreadLocalState leaves out of autocast: the type, and whether it keeps casts.
  torch::DeviceType type_;
  torch::ScalarType cast_type_;
  bool caches_casts_;
  std::vector<c10::Stream> streams_;  // for each device; empty for CPUs
};

}  // namespace lockstep::data_parallel
