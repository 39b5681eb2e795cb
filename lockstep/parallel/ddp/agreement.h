// Checks that all ranks have the same model.
#pragma once

#include <string>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep::parallel {

/// Collective. A `problem` on any rank is a ConfigError on every rank, which names the first such
/// rank. Otherwise compares `options`, lines "option NAME VALUE", and the names, shapes, strides
/// and dtypes of all parameters and buffers over the ranks of `group`. ConfigError, on every rank,
/// names the first difference and shows both sides of it.
void verify_agreement(const torch::nn::Module& module, const std::string& options,
                      const std::string& problem, ProcessGroup& group);

}  // namespace lockstep::parallel
