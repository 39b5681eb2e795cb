// Two ranks on one GPU.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <torch/cuda.h>

#include <lockstep/core/error.h>
#include <tests/support/devices/gpu.h>
#include <tests/support/groups.h>

namespace lockstep::testing_support {

/// What run_two_ranks_on_a_gpu() returns for both ranks on a machine without a GPU.
inline const std::vector<std::string> kNoGpuFound(2, "no GPU");

/// Calls `body` with each rank's group. The ranks are processes, because two ranks' backward passes
/// on one GPU would share that GPU's autograd thread. The caller's process must not have used CUDA,
/// which does not survive a fork. Returns the ranks' errors, as run_processes() does.
inline std::vector<std::string> run_two_ranks_on_a_gpu(
    const std::function<void(ProcessGroup)>& body) {
  const int fd = comm::listen_on("127.0.0.1", 0);
  auto errors = run_processes(
      2,
      [&](int rank) {
        if (!torch::cuda::is_available()) throw Error(kNoGpuFound[0]);
        body(init_process_group({.timeout = std::chrono::seconds(60),
                                 .device = kGpu,
                                 .environment = environment_of(rank, 2, fd)}));
      },
      std::chrono::seconds(120));
  close(fd);
  return errors;
}

}  // namespace lockstep::testing_support
