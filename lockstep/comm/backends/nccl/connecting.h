// How a rank waits while NCCL, or another library like it, connects the ranks. Such a library waits
// for a missing peer without a deadline, and nothing interrupts it. Does not depend on CUDA.
#pragma once

#include <chrono>
#include <functional>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <lockstep/comm/backends/c10d/adapter_options.h>

namespace lockstep::nccl {

/// Calls `call`, in which the library waits for the peers, on a thread of its own, and waits for
/// its end. Throws what it throws. Gives up if `meanwhile` throws, or with TimeoutError after
/// `timeout`. The thread then stays in the library, at worst until the process ends, so `call` must
/// own what it uses.
void await_library(std::function<void()> call, const c10d_adapter::Meanwhile& meanwhile,
                   std::chrono::milliseconds timeout);

/// Like await_library(), for a call in which the ranks also find each other through a store. `call`
/// gets a view of `store`, in which no wait outlasts this one.
void connect_library(const c10::intrusive_ptr<c10d::Store>& store,
                     std::function<void(c10::intrusive_ptr<c10d::Store>)> call,
                     const c10d_adapter::Meanwhile& meanwhile, std::chrono::milliseconds timeout);

}  // namespace lockstep::nccl
