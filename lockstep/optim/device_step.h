// The numbers of an optimizer step that change from step to step, as tensors.
#pragma once

#include <torch/types.h>

namespace lockstep {

/// An UpdateRule that gets these reads them on the device when the step runs. A CUDA graph may
/// therefore replay the launches of one step for all later ones, and the host never waits.
/// All tensors have one element and are on the parameters' device.
struct DeviceStep {
  /// See lr_type().
  torch::Tensor lr{};
  /// Number of this step, from 1: float32. Undefined where the rule counts no steps.
  torch::Tensor number{};
  /// float32: 1 where the step must change nothing, as GradScaler finds out, and 0 elsewhere.
  /// Undefined: the step counts.
  torch::Tensor found_inf{};
};

/// Type of DeviceStep::lr. LibTorch's fused kernels take float32 on GPUs; on a CPU float64 keeps
/// all bits of the rate that the options give.
inline torch::ScalarType lr_type(torch::Device device) {
  return device.is_cpu() ? torch::kFloat64 : torch::kFloat32;
}

}  // namespace lockstep
