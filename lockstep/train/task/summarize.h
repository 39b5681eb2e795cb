// Makes the summary of a module.
//
//   const auto summary =
//       lockstep::summarize(*net, /*max_depth=*/2, [&] { return net->forward(x); });
//   std::cout << lockstep::table_text(summary);   // report/model_summary_table.h
#pragma once

#include <functional>
#include <string>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/train/task/model_summary.h>

namespace lockstep {

/// Runs the model once and returns its output, or an undefined tensor if the output is not
/// accessible.
using SummaryForward = std::function<torch::Tensor()>;

/// Summarizes the module and its parts down to `max_depth`: 1 for its children, -1 for all, like
/// Lightning's ModelSummary. Without `forward` no output shapes are known. Otherwise `forward` is
/// called, at most twice, in eval mode and without gradients; the modules' modes are restored.
/// Known output shapes are those of
///   - modules called by a torch::nn::Sequential, if they take a tensor and return one, and of the
///     Sequential itself: both are replaced by observing modules for this call;
///   - LibTorch's own layers with parameters or buffers (convolution, linear, normalisation,
///     embedding, recurrent), if LibTorch's profiler reports the use of one of their tensors; uses
///     by kernels of other kinds are not seen;
///   - modules with a forward() of their own, if the tensors that others use after their layers
///     have one shape, whichever of the following operations are the module's own;
///   - LibTorch's activation, dropout, flattening and pooling layers, if the module that contains
///     them has only one of the class, and all such operations there have one shape;
///   - the modules of a Program, if the tensors that others use have one shape;
///   - the model, if `forward` returns its output.
/// For other modules with a forward() of their own, the shape of their last operation with a layer
/// or a parameter is given (ModuleSummary::last_operation_shape).
/// It is assumed that a module uses no other parameters than its own and its children's, and that
/// registered layers are in use.
/// Not thread-safe: nothing else may use the module meanwhile. Throws the errors of `forward`.
/// Throws ConfigError for a depth below -1.
LOCKSTEP_API ModelSummary summarize(torch::nn::Module& module, int max_depth = 1,
                                    const SummaryForward& forward = {});

/// The type of a module without its namespaces, and without "Impl": "Conv2d".
LOCKSTEP_API std::string type_name_of(const torch::nn::Module& module);

}  // namespace lockstep
