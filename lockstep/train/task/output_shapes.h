// Observes the output shapes of a model's modules from outside. Internal to lockstep/train.
#pragma once

#include <functional>
#include <unordered_map>

#include <torch/nn/module.h>

#include <lockstep/train/task/model_summary.h>

namespace lockstep::train {

/// Output shapes by the module's address.
using OutputShapes = std::unordered_map<const torch::nn::Module*, OutputShape>;

struct WatchedShapes {
  OutputShapes outputs{};
  OutputShapes last_operations{};  ///< for modules not in `outputs`; see ModuleSummary
};

/// Calls `forward`, which runs `module` in this thread and returns its output or an undefined
/// tensor, and returns the known shapes (see summarize.h). If a Sequential cannot be watched,
/// `forward` is called a second time. Throws the errors of `forward`.
WatchedShapes watch_output_shapes(torch::nn::Module& module,
                                  const std::function<torch::Tensor()>& forward);

}  // namespace lockstep::train
