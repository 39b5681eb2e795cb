// Devices that this process has.
#pragma once

#include <string>

#include <torch/types.h>

namespace lockstep {

/// `device` as its tensors name it: no index for a CPU, one for an accelerator, where the current
/// device stands in for a missing index. ConfigError, whose text begins with `prefix`, if this
/// process has no such device.
torch::Device existing_device(torch::Device device, const std::string& prefix);

}  // namespace lockstep
