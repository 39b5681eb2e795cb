// A run of a module, recorded operation by operation by LibTorch's tracer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

namespace lockstep::onnx {

using Tensors = std::vector<at::Tensor>;
using Forward = std::function<Tensors(const Tensors& inputs)>;

/// Parameters and buffers under the names that state_dict() gives them, each tensor once.
using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

/// The graph's inputs are the recorded run's inputs, then the parameters in their order. It has no
/// blocks. Each tensor in it has the size and type that it had in the run.
struct Recording {
  std::shared_ptr<torch::jit::Graph> graph{};
  Tensors outputs{};  ///< what the run returned
  /// The parameters that were used last when forward() read a value out of a tensor that depends on
  /// the inputs (item(), equal(), also inside allclose() and the like): "fc.weight", or empty
  /// before the first.
  std::vector<std::string> reads{};
};

/// Calls forward() with copies of `inputs`, without gradients, and records it. ConfigError when an
/// output is not computed from inputs or parameters by operations of LibTorch, when forward() uses
/// a tensor that requires a gradient and is no parameter, or an operation that the tracer cannot
/// record.
/// What else forward() throws passes through. Uses the calling thread's tracer.
Recording record(const Forward& forward, const Tensors& inputs, const NamedParameters& parameters);

/// Computes the outputs that the recorded operations give for `inputs`.
Tensors replay(const Recording& recording, const Tensors& inputs,
               const NamedParameters& parameters);

}  // namespace lockstep::onnx
