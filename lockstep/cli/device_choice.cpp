#include <lockstep/cli/device_choice.h>

#include <numeric>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep::cli {

void check_accelerator(const std::string& command, const std::string& accelerator) {
  if (accelerator == "gpu") {  // as in Lightning
    throw ConfigError(str(command, ": write --accelerator cuda instead of gpu"));
  }
  OptionCheck(command).one_of("--accelerator", accelerator, {"auto", "cpu", "cuda"});
}

std::optional<int> choose_gpu(const std::string& accelerator, int gpu_count, int local_rank,
                              int local_world_size, bool share) {
  if (share) {
    if (gpu_count > 0) return local_rank % gpu_count;
    throw ConfigError("train: --share-gpu needs a GPU, but this process sees none; remove it");
  }
  if (accelerator == "cpu") return std::nullopt;
  if (gpu_count >= local_world_size) return local_rank;
  if (accelerator == "auto") return std::nullopt;
  if (gpu_count == 1) return 0;
  throw ConfigError(str("train: --accelerator cuda needs as many GPUs as this host has ranks (",
                        local_world_size, "), but this process sees ", gpu_count,
                        "; use --accelerator auto or cpu",
                        gpu_count > 0 ? ", or --share-gpu to run several ranks on each GPU" : ""));
}

std::vector<int> choose_gpus(const std::string& accelerator, int gpu_count,
                             std::optional<int> wanted) {
  if (accelerator == "cpu") return {};
  const int needed = wanted.value_or(1);
  if (gpu_count < needed) {
    if (accelerator == "auto") return {};
    throw ConfigError(str("train: --accelerator cuda needs ", needed,
                          needed == 1 ? " GPU" : " GPUs", ", but this process sees ", gpu_count));
  }
  std::vector<int> gpus(static_cast<std::size_t>(wanted.value_or(gpu_count)));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

nccl::GpuSharing choose_gpu_sharing(const std::string& command, std::optional<int> nccl_version) {
  if (const auto sharing = nccl::gpu_sharing(nccl_version)) return *sharing;
  throw ConfigError(str(command, ": --share-gpu needs NCCL 2.28 or newer, ",
                        nccl_version ? "but this is NCCL " + nccl::version_text(*nccl_version)
                                     : "which only a build with CUDA has, and this is none",
                        "; remove it, or use a newer CUDA build of LibTorch"));
}

std::string note_on(nccl::GpuSharing sharing) {
  return str("note: --share-gpu: ranks on one GPU take turns",
             sharing == nccl::GpuSharing::kOwnHosts ? " and exchange data through sockets" : "",
             "; such a run is for correctness, not for speed");
}

}  // namespace lockstep::cli
