// A recorded operation, as seen by the lowering that reads its arguments and adds ONNX nodes.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>

#include <lockstep/core/error.h>
#include <lockstep/export/lowering/graph_builder.h>
#include <lockstep/export/trace/trace.h>

namespace lockstep::onnx {

/// Information on a recorded value while the graph is built.
struct Operand {
  std::string name{};              ///< in the ONNX graph; empty for a known value
  at::Tensor constant{};           ///< defined if the value is known: parameter, folded constant
  std::string wish{};              ///< the preferred name of its initializer
  std::vector<Operand> members{};  ///< members of a list of tensors
  bool is_float32 = false;         ///< in LibTorch; the graph may have it as float16
};

using Operands = std::unordered_map<const torch::jit::Value*, Operand>;

/// Gives a lowering access to one operation and to the translator's state; lives only during that
/// lowering. The accessors take the index of an argument in LibTorch's schema. They throw
/// Unsupported if the argument is of another kind, or if its value is known only when the model
/// runs.
class RecordedOperation {
 public:
  RecordedOperation(const torch::jit::Node& node, const Trace& trace, Operands& operands,
                    GraphBuilder& builder, bool fold_batch_norm)
      : node_(node),
        trace_(trace),
        operands_(operands),
        builder_(builder),
        fold_batch_norm_(fold_batch_norm) {}

  /// Another recorded operation, such as the one that produces an argument.
  RecordedOperation at(const torch::jit::Node& node) const {
    return {node, trace_, operands_, builder_, fold_batch_norm_};
  }

  const torch::jit::Node& node() const { return node_; }
  GraphBuilder& graph() { return builder_; }
  int opset() const { return builder_.opset(); }
  bool fold_batch_norm() const { return fold_batch_norm_; }

  std::size_t arguments() const { return node_.inputs().size(); }
  /// Whether the argument exists and is not None.
  bool has(std::size_t i) const;
  bool is_tensor(std::size_t i) const;
  bool is_list(std::size_t i) const;

  /// The name of a tensor in the graph; empty for None.
  std::string tensor(std::size_t i);
  /// The name of the argument, a tensor or a number, converted to `type`.
  std::string tensor_as(std::size_t i, at::ScalarType type);
  /// The names of a list of tensors.
  Names tensors(std::size_t i);
  /// The name of a value that is a member of an argument.
  std::string value(const torch::jit::Value* value) { return materialize(value); }
  /// Information on a value that is a member of an argument; null if it is not a tensor.
  const Operand* operand(const torch::jit::Value* value) const;
  /// The tensor's values if they are known, as for a parameter or a constant.
  std::optional<at::Tensor> known(std::size_t i) const;
  /// The preferred name of a known tensor's initializer.
  std::string wish(std::size_t i) const;

  c10::Scalar scalar(std::size_t i) const;
  std::int64_t integer(std::size_t i) const;
  std::int64_t integer_or(std::size_t i, std::int64_t otherwise) const;
  double number(std::size_t i) const;
  double number_or(std::size_t i, double otherwise) const;
  bool flag(std::size_t i) const;
  std::string text(std::size_t i) const;
  std::vector<std::int64_t> integers(std::size_t i) const;
  std::vector<double> numbers(std::size_t i) const;
  at::ScalarType scalar_type_or(std::size_t i, at::ScalarType otherwise) const;
  /// Integers that may follow the batch, such as the arguments of view().
  Extent extent(std::size_t i) const;
  Extents extents(std::size_t i) const;

  const Extents& sizes(std::size_t i) const;
  /// The sizes of each tensor of a list that forward() has made; otherwise none.
  std::vector<Extents> sizes_of_members(std::size_t i) const;
  std::int64_t rank(std::size_t i) const { return static_cast<std::int64_t>(sizes(i).size()); }
  at::ScalarType type(std::size_t i) const;
  const Extents& result_sizes(std::size_t k = 0) const;
  at::ScalarType result_type(std::size_t k = 0) const;
  /// The sizes of each member of a result that is a list of tensors.
  std::vector<Extents> list_sizes() const;
  /// Whether the result is used.
  bool is_used(std::size_t k) const;
  /// The sizes to which two arguments are broadcast.
  Extents broadcast_sizes(std::size_t i, std::size_t j) const;
  /// Converts the `dimension` of a tensor argument, which may be negative, to one counted from 0.
  /// Throws Unsupported if the tensor has no dimensions: LibTorch then takes dimension 0 or -1.
  std::int64_t axis(std::int64_t dimension, std::int64_t rank) const;
  /// The size of a dimension. Throws Unsupported if it follows the batch.
  std::int64_t fixed(const Extent& extent, const std::string& what) const;

  std::string add(const std::string& op_type, Names inputs, Attributes attributes = {}) {
    return builder_.add(op_type, std::move(inputs), std::move(attributes));
  }
  /// Adds a node whose output is the operation's result.
  void result(const std::string& op_type, Names inputs, Attributes attributes = {}) {
    bind(add(op_type, std::move(inputs), std::move(attributes)));
  }
  /// Makes the value `name` the operation's result. Throws Unsupported if it is of another type.
  void bind(const std::string& name, std::size_t k = 0);
  /// Makes the values with these names the members of the operation's result, a list of tensors.
  void bind_list(const Names& names);

  std::string cast(const std::string& name, at::ScalarType from, at::ScalarType to);
  /// Casts a value of `type` to float32 if it is float16 in the model, where squares of numbers
  /// above 255 overflow. LibTorch's kernels for float16 also compute in float32.
  std::string widened(const std::string& name, at::ScalarType type);
  /// Undoes the cast of widened().
  std::string narrowed(const std::string& name, at::ScalarType type);
  /// A number for arithmetic with widened() values.
  std::string wide_scalar(double value, at::ScalarType type);
  /// Expands a value of the sizes `from` to the sizes `to`.
  std::string expanded(const std::string& name, const Extents& from, const Extents& to) {
    return from == to ? name : add("Expand", {name, builder_.sizes(to)});
  }
  std::string reshape(const std::string& name, const Extents& extents) {
    return builder_.reshape(name, extents);
  }
  std::string transpose(const std::string& name, std::vector<std::int64_t> order) {
    return add("Transpose", {name}, {{"perm", std::move(order)}});
  }
  std::string unsqueeze(const std::string& name, std::vector<std::int64_t> axes) {
    return add("Unsqueeze", {name, builder_.integers(axes)});
  }
  std::string squeeze(const std::string& name, std::vector<std::int64_t> axes) {
    return add("Squeeze", {name, builder_.integers(axes)});
  }
  std::string slice(const std::string& name, std::int64_t axis, std::int64_t begin,
                    std::int64_t end, std::int64_t step = 1);
  /// Adds ReduceMean or a similar node. The axes became an input in opset 18 (for ReduceSum in 13).
  std::string reduce(const std::string& op_type, const std::string& name,
                     std::vector<std::int64_t> axes, bool keep);

  [[noreturn]] void reject(const std::string& reason) const { throw Unsupported(reason); }

 private:
  const torch::jit::Value* input(std::size_t i) const { return node_.input(i); }
  std::string materialize(const torch::jit::Value* value);
  std::string named(const Operand& operand);
  const Extents& sizes_of(const torch::jit::Value* value) const;

  const torch::jit::Node& node_;
  const Trace& trace_;
  Operands& operands_;
  GraphBuilder& builder_;
  const bool fold_batch_norm_;
};

}  // namespace lockstep::onnx
