// Checks that all ranks have the same model.
#pragma once

#include <string>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>

namespace lockstep::parallel {

/// Collective. If any rank has a `problem`, throws ConfigError on every rank, naming the first such
/// rank. Otherwise compares `options`, lines "option NAME VALUE", and the names, shapes, strides
/// and dtypes of all parameters and buffers over the ranks of `group`. If they differ, throws
/// ConfigError on every rank, naming the first difference and showing both sides of it.
void verify_agreement(const torch::nn::Module& module, const std::string& options,
                      const std::string& problem, ProcessGroup& group);

}  // namespace lockstep::parallel
