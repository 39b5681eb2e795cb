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
                              int local_world_size) {
  if (accelerator == "cpu") return std::nullopt;
  if (gpu_count >= local_world_size) return local_rank;
  if (accelerator == "auto") return std::nullopt;
  if (gpu_count == 1) return 0;
  throw ConfigError(str("train: --accelerator cuda needs as many GPUs as this host has ranks (",
                        local_world_size, "), and sees ", gpu_count,
                        "; with --accelerator auto or cpu the processor computes"));
}

std::vector<int> choose_gpus(const std::string& accelerator, int gpu_count,
                             std::optional<int> wanted) {
  if (accelerator == "cpu") return {};
  const int needed = wanted.value_or(1);
  if (gpu_count < needed) {
    if (accelerator == "auto") return {};
    throw ConfigError(str("train: --accelerator cuda needs ", needed,
                          needed == 1 ? " GPU" : " GPUs", ", and this process sees ", gpu_count));
  }
  std::vector<int> gpus(static_cast<std::size_t>(wanted.value_or(gpu_count)));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

}  // namespace lockstep::cli
