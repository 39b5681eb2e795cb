// The memory format of a module's parameters.
#pragma once

#include <torch/nn/module.h>

namespace lockstep {

/// Gives every four-dimensional parameter of `module` channels-last strides, in place: convolutions
/// then run channels-last without converting. Call before optimizers and strategies see the module.
void to_channels_last(torch::nn::Module& module);

}  // namespace lockstep
