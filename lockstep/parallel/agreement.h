// Do all ranks have the same model?
#pragma once

#include <string>

#include <lockstep/comm/process_group.h>

namespace lockstep {

/// Collective. Compares `options`, a line of text, and the names, shapes, strides and dtypes of all
/// parameters and buffers over the ranks of `group`. ConfigError, on every rank, names the first that differs
/// and both sides of it.
void verify_agreement(const torch::nn::Module& module, const std::string& options, ProcessGroup& group);

}  // namespace lockstep
