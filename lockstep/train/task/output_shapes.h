// Which shapes the modules of a model return, seen from outside. Internal to the room.
#pragma once

#include <functional>
#include <unordered_map>

#include <torch/nn/module.h>

#include <lockstep/train/task/model_summary.h>

namespace lockstep {

/// By the address of the module.
using OutputShapes = std::unordered_map<const torch::nn::Module*, OutputShape>;

/// Calls `forward`, which runs `module` in this thread, and returns the shapes that are known (see
/// summarize.h). Where a Sequential cannot be watched, `forward` is called a second time. Throws
/// what that throws.
OutputShapes watch_output_shapes(torch::nn::Module& module, const std::function<void()>& forward);

}  // namespace lockstep
