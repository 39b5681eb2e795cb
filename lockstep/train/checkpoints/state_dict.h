// The state of a module under the names, and in the order, that Python's state_dict() gives it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>

namespace lockstep {

/// Named tensors in a fixed order.
using StateDict = std::vector<std::pair<std::string, torch::Tensor>>;

/// Parameters and buffers of `module`, detached, sharing its memory: for each submodule in the
/// order of registration its parameters, then its buffers, then its children.
LOCKSTEP_API StateDict state_dict(const torch::nn::Module& module);

/// Copies `state` into `module` by name, in any order. CheckpointError names the first tensor that
/// is missing, unexpected or of another shape or type; the module is then unchanged.
LOCKSTEP_API void load_state_dict(torch::nn::Module& module, const StateDict& state);

/// Copies the tensors of `from` into the tensors of `to` with equal names, by the rules of
/// load_state_dict(). `origin` begins the error messages.
LOCKSTEP_API void copy_state(const StateDict& from, const StateDict& to, const std::string& origin);

}  // namespace lockstep
