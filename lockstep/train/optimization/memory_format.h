// The memory format of a module's parameters.
#pragma once

#include <torch/nn/module.h>

namespace lockstep::train {

/// Gives every four-dimensional parameter of `module` channels-last strides, in place, so that
/// convolutions run channels-last without conversion. Programs among its modules do
/// Program::to_channels_last(). Call it before optimizers and strategies see the module.
void to_channels_last(torch::nn::Module& module);

}  // namespace lockstep::train
