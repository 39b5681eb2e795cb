// LibTorch's operators on the far device, which run on copies with its CPU kernels.
#pragma once

namespace lockstep::testing_support::far_device {

/// Registers them for the rest of this process. Must be called once.
void register_operators();

}  // namespace lockstep::testing_support::far_device
