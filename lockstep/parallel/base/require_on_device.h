// Checks that stages on several devices share no tensors.
#pragma once

#include <cstddef>
#include <string>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::parallel {

/// Throws ConfigError, whose text begins with `prefix`, if a parameter or buffer of stage `number`
/// is not on `device`. Call it after all stages have been moved to their devices: moving a later
/// stage moves the tensors that it shares with an earlier one.
void require_on_device(const torch::nn::Module& stage, std::size_t number, torch::Device device,
                       const std::string& prefix);

}  // namespace lockstep::parallel
