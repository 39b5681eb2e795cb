// The values that change from one optimizer step to the next, as tensors.
#pragma once

#include <torch/types.h>

#include <lockstep/core/export.h>

namespace lockstep::detail {

/// An UpdateRule that gets these tensors reads them on the device when the step runs. A CUDA graph
/// can therefore replay the launches of one step for all later ones, and the host never waits. All
/// tensors have one element and are on the parameters' device.
struct LOCKSTEP_API DeviceStep {
  /// The learning rate, of the type lr_type().
  torch::Tensor lr{};
  /// Number of this step, from 1: float32. Undefined if the rule does not count steps.
  torch::Tensor number{};
  /// float32: 1 if the step must change nothing, as determined by GradScaler; otherwise 0.
  /// Undefined means 0.
  torch::Tensor found_inf{};
};

/// The type of DeviceStep::lr. LibTorch's fused kernels take float32 on GPUs; on a CPU float64
/// keeps all bits of the learning rate in the options.
inline torch::ScalarType lr_type(torch::Device device) {
  return device.is_cpu() ? torch::kFloat64 : torch::kFloat32;
}

}  // namespace lockstep::detail
