// Which GPU, if any, a rank trains on.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The index of this rank's GPU; nothing for the CPU. `gpu_count` is what this process sees.
/// `accelerator` "auto" takes GPUs only when each rank of the host can have one, so that all ranks
/// decide alike; "cuda" takes rank r's r-th GPU, or the only one visible, where the launcher shows
/// each rank its own. ConfigError when "cuda" cannot be had.
std::optional<int> choose_gpu(const std::string& accelerator, int gpu_count, int local_rank,
                              int local_world_size);

/// The indices of the GPUs of one process that computes on several devices: the first `wanted`
/// ones, or all if `wanted` has no value. Empty means CPUs, which "auto" falls back to where GPUs
/// are missing. ConfigError when "cuda" cannot be had.
std::vector<int> choose_gpus(const std::string& accelerator, int gpu_count,
                             std::optional<int> wanted);

}  // namespace lockstep
