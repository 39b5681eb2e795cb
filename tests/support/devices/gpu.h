// The GPU of the tests that need one.
#pragma once

#include <torch/types.h>

namespace lockstep::testing_support {

inline const torch::Device kGpu(torch::kCUDA, 0);

}  // namespace lockstep::testing_support
