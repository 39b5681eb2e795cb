// Carries a thread's settings to the threads of a team that work for it.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include <lockstep/parallel/base/autocast_type_scope.h>

namespace lockstep::parallel {

/// The thread-local state of the thread that constructs it: gradient and inference mode, autocast,
/// hooks for saved tensors, the profiler; on GPUs also the current stream of each device, on which
/// the members then queue their work, as in PyTorch's parallel_apply. LibTorch keeps current
/// streams per thread, and ThreadLocalState does not include them.
class CallerState {
 public:
  /// Member i of the team computes on `devices[i]`. `others` are further devices whose current
  /// streams the members need, such as the device of a batch from which they copy. GPUs must be of
  /// one type and have an index.
  explicit CallerState(const std::vector<torch::Device>& devices,
                       const std::vector<torch::Device>& others = {});

  /// While it lives, this thread works as `member` for the thread that made the state. The current
  /// device is the member's.
  class Scope {
   public:
    Scope(const CallerState& state, std::size_t member);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    at::ThreadLocalStateGuard state_;
    detail::AutocastTypeScope cast_type_;
    bool former_cache_;
    c10::DeviceGuard device_;
    c10::MultiStreamGuard streams_;
  };

 private:
  at::ThreadLocalState state_;
  std::vector<torch::Device> devices_;
  // The autocast state that ThreadLocalState omits: each member's dtype, and whether casts are
  // cached.
  std::vector<torch::ScalarType> cast_types_;
  bool caches_casts_;
  std::vector<c10::Stream> streams_;  // one for each GPU
};

}  // namespace lockstep::parallel
