// A run of a module, recorded operation by operation by LibTorch's tracer.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include <lockstep/core/error.h>
#include <lockstep/export/trace/extent.h>

namespace lockstep::onnx {

using Tensors = std::vector<at::Tensor>;
using Forward = std::function<Tensors(const Tensors& inputs)>;

/// Parameters and buffers with their names in state_dict(), each tensor once.
using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

/// Where a tensor of a run comes from: it is result `number` of Recording::calls[call], or input
/// `number` of the graph.
struct Origin {
  static constexpr std::size_t kInput = static_cast<std::size_t>(-1);

  std::size_t call = kInput;
  std::size_t number = 0;

  friend bool operator==(const Origin&, const Origin&) = default;
};

/// What an operation was called with: a tensor with an origin, a list, or a constant.
struct Argument {
  std::optional<Origin> origin{};
  bool is_list = false;
  std::vector<Argument> members{};
  c10::IValue constant{};
  /// For a number: how it follows the batch, if it does.
  std::optional<Extent> extent{};
  /// Whether the argument is another one in other runs. An output may then not depend on it.
  bool varies = false;
};

/// An operation as forward() called it. The tracer later removes it from the graph if no output
/// depends on it, and replaces it by another one if its name is an alias, as multiply is of mul.
struct Call {
  std::string name{};                         ///< "aten::relu_"
  const torch::jit::Node* node = nullptr;     ///< null if the graph no longer has it
  bool has_schema = true;                     ///< whether LibTorch knows the form that was recorded
  std::vector<Argument> arguments{};          ///< as they were in the call
  std::vector<c10::TensorTypePtr> results{};  ///< the types of its tensors, with their sizes
};

/// The graph's inputs are the inputs of the recorded run, followed by the parameters in order. It
/// has no blocks. Each tensor in it has the size and type that it had in the run.
struct Recording {
  std::shared_ptr<torch::jit::Graph> graph{};
  Tensors outputs{};          ///< what the run returned
  std::vector<Call> calls{};  ///< all operations in order, also those on which no output depends
  std::vector<Argument> output_origins{};  ///< where each output comes from
  /// One entry for each value that forward() read (by item() or equal(), also inside allclose() and
  /// the like) out of a tensor that depends on the inputs: the parameter used last before the read,
  /// such as "fc.weight", or empty if there was none.
  std::vector<std::string> reads{};
};

/// forward() caught an exception of an operation. What it did then is a branch on the operation's
/// arguments, and LibTorch's tracer has ended.
class CaughtException : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Calls forward() with copies of `inputs`, without gradients, and records it. Throws
/// CaughtException, and ConfigError if an output is not computed from inputs or parameters by
/// LibTorch operations, if forward() uses a tensor that requires a gradient but is not a parameter,
/// if it computes under autocast, or if the tracer cannot record an operation.
///
/// A c10::Error of forward() becomes a ConfigError in one line: it names the types and sizes of the
/// inputs and the place in the module, repeats the first line of the error, and ends with `advice`.
/// The original is nested in it. Other exceptions of forward() pass through if `inputs` are the
/// user's own. If the export made them, `other_inputs` says how they differ from the example, as in
/// "a batch of 3"; any exception then becomes such a ConfigError.
///
/// Uses the calling thread's tracer.
Recording record(const Forward& forward, const Tensors& inputs, const NamedParameters& parameters,
                 const std::string& other_inputs = "", const std::string& advice = "");

/// Computes the outputs of the recorded operations for `inputs`.
Tensors replay(const Recording& recording, const Tensors& inputs,
               const NamedParameters& parameters);

}  // namespace lockstep::onnx
