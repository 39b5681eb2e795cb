// Makes the summary of a module.
//
//   const auto summary = lockstep::summarize(*net, /*max_depth=*/2, [&] { return net->forward(x);
//   }); std::cout << lockstep::table_text(summary);   // report/model_summary_table.h
#pragma once

#include <functional>

#include <torch/nn/module.h>

#include <lockstep/train/task/model_summary.h>

namespace lockstep {

/// Runs the model once and returns its output, or an undefined tensor where the caller does not get
/// at it.
using SummaryForward = std::function<torch::Tensor()>;

/// The module and its parts down to `max_depth`: 1 for its children, -1 for all, as Lightning's
/// ModelSummary. Without `forward` no output has a known shape. Otherwise it is called, at most
/// twice, in eval mode and without gradients; the modes of the modules are restored. Known are then
/// the shapes of
///   - what a torch::nn::Sequential calls, where that takes a tensor and returns one: it is
///   replaced
///     for this call by a module that looks on, and so is the Sequential itself;
///   - LibTorch's own layers with parameters or buffers (convolution, linear, normalisation,
///     embedding, recurrent), of which LibTorch's profiler tells that a tensor of theirs is used;
///     a kernel of another kind that uses it is not seen;
///   - the model, where `forward` returns its output.
/// Not thread-safe: nothing else may use the module meanwhile. Throws what `forward` throws.
/// ConfigError for a depth below -1.
ModelSummary summarize(torch::nn::Module& module, int max_depth = 1,
                       const SummaryForward& forward = {});

}  // namespace lockstep
