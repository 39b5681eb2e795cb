#include <lockstep/train/optimization/memory_format.h>

namespace lockstep::train {

void to_channels_last(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    if (parameter.dim() != 4) continue;
    // contiguous() would keep the strides of a tensor that is dense in both formats (one channel).
    parameter.set_data(parameter.to(parameter.options(), /*non_blocking=*/false, /*copy=*/true,
                                    torch::MemoryFormat::ChannelsLast));
  }
}

}  // namespace lockstep::train
