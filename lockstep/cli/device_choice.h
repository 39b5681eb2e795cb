// Chooses the GPU, if any, that a rank trains on, according to --accelerator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/comm/backends/nccl/gpu_sharing.h>

namespace lockstep::cli {

/// Throws ConfigError, beginning with `command`, unless `accelerator` is auto, cpu or cuda.
void check_accelerator(const std::string& command, const std::string& accelerator);

/// The index of this rank's GPU; nothing for the CPU. `gpu_count` is the number visible to this
/// process. With `accelerator` "auto", GPUs are used only if each rank of the host can have one, so
/// that all ranks decide alike; with "cuda", rank r uses the r-th GPU, or the only visible one if
/// the launcher shows each rank its own. If ranks may `share` a GPU, rank r uses GPU r modulo the
/// number of GPUs. Throws ConfigError if "cuda" or `share` is requested but not available.
std::optional<int> choose_gpu(const std::string& accelerator, int gpu_count, int local_rank,
                              int local_world_size, bool share = false);

/// The indices of the GPUs of one process that computes on several devices: the first `wanted`
/// ones, or all if `wanted` is absent. Empty means CPUs, which "auto" falls back to if there are
/// too few GPUs. Throws ConfigError if "cuda" is requested but not available.
std::vector<int> choose_gpus(const std::string& accelerator, int gpu_count,
                             std::optional<int> wanted);

/// How NCCL of version `nccl_version` lets ranks share a GPU, for --share-gpu of `command`. Throws
/// ConfigError if this version does not, or if it is absent.
nccl::GpuSharing choose_gpu_sharing(const std::string& command, std::optional<int> nccl_version);

/// The line that tells the user what to expect of a run whose ranks share GPUs.
std::string note_on(nccl::GpuSharing sharing);

}  // namespace lockstep::cli
