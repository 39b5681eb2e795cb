#include <lockstep/cli/device_choice.h>

#include <lockstep/core/error.h>

namespace lockstep {

std::optional<int> choose_gpu(const std::string& accelerator, int gpu_count, int local_rank,
                              int local_world_size) {
  if (accelerator == "cpu") return std::nullopt;
  if (gpu_count >= local_world_size) return local_rank;
  if (accelerator == "auto") return std::nullopt;
  if (gpu_count == 1) return 0;
  throw ConfigError(str("train: --accelerator cuda needs a GPU for each of the ", local_world_size,
                        " ranks of this host, and sees ", gpu_count));
}

}  // namespace lockstep
