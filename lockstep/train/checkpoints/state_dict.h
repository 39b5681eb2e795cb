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

/// The parameters and buffers of `module`, detached, sharing its memory. Each module contributes
/// its parameters, then its buffers, then its children, in the order of registration.
LOCKSTEP_API StateDict state_dict(const torch::nn::Module& module);

/// Copies `state` into `module` by name, in any order. Throws CheckpointError and leaves the module
/// unchanged if a tensor is missing, unexpected, or of another shape or type; the message names the
/// first one.
LOCKSTEP_API void load_state_dict(torch::nn::Module& module, const StateDict& state);

/// Copies the tensors of `from` into those of `to` with the same names, with the rules and errors
/// of load_state_dict(). Error messages begin with `origin`.
LOCKSTEP_API void copy_state(const StateDict& from, const StateDict& to, const std::string& origin);

}  // namespace lockstep
