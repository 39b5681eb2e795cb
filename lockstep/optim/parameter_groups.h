// Parts of a model's parameters that are stepped with separate options.
//
//   const auto groups = lockstep::group_parameters(
//       *net, [](const std::string& name, const torch::Tensor& parameter) {
//         lockstep::AdamWOptions options{.lr = name.starts_with("head.") ? 1e-3 : 1e-4};
//         if (parameter.dim() < 2) options.weight_decay = 0;  // biases, weights of normalisations
//         return options;
//       });
//   lockstep::Optimizer optimizer(groups);
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/optim/options.h>

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Parameters, with the names that their state has in a checkpoint, and their options.
struct LOCKSTEP_API ParameterGroup {
  NamedTensors parameters = {};
  OptimizerOptions options = {};
};

/// The parameters of `module` that require a gradient, each once, under its first name.
LOCKSTEP_API NamedTensors trainable_parameters(const torch::nn::Module& module);

/// Returns the options of one parameter. All results must be options of one optimizer.
using OptionsOfParameter =
    std::function<OptimizerOptions(const std::string& name, const torch::Tensor& parameter)>;

/// Groups the trainable parameters of `module`, each once, by equal options; calls `options_of`
/// once per parameter. The groups are in the order in which their options first occurred.
LOCKSTEP_API std::vector<ParameterGroup> group_parameters(const torch::nn::Module& module,
                                                          const OptionsOfParameter& options_of);

}  // namespace lockstep
