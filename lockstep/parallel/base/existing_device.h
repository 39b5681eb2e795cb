// Checks that a device exists in this process.
#pragma once

#include <string>

#include <torch/types.h>

namespace lockstep::parallel {

/// `device` with the index that its tensors report: none for a CPU; for an accelerator, a missing
/// index becomes the current device. Throws ConfigError, whose text begins with `prefix`, if this
/// process has no such device.
torch::Device existing_device(torch::Device device, const std::string& prefix);

}  // namespace lockstep::parallel
