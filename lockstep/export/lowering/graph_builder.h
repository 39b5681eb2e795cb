// Adds nodes and initializers to an ONNX graph, and names them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/export/lowering/supported_types.h>
#include <lockstep/export/onnx/onnx_graph.h>
#include <lockstep/export/trace/extent.h>

namespace lockstep::onnx {

/// The ONNX equivalent of a type. Throws ConfigError if ONNX or onnxruntime lacks the type.
ElementType element_type(at::ScalarType type);

/// Thrown for a constant that float16 cannot hold, so that its operation must compute in float32.
class BeyondFloat16 : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

/// Names of values in the graph; an empty name stands for an omitted optional input.
using Names = std::vector<std::string>;

/// Builds one graph, on one thread. Nodes are appended to the graph, so their inputs must have been
/// added before.
class GraphBuilder {
 public:
  /// With `half`, float32 tensors become float16.
  GraphBuilder(int opset, bool half) : opset_(opset), half_(half) {}

  int opset() const { return opset_; }
  /// Whether float32 values of LibTorch are float16 in the nodes that are added now.
  bool half() const { return half_ && !wide_; }
  /// Lets the following nodes compute in float32 even if the graph is one of float16.
  void set_wide(bool wide) { wide_ = wide; }
  Graph& graph() { return graph_; }

  /// The type that values of LibTorch's `type` have in this graph.
  ElementType type_of(at::ScalarType type) const;
  /// The type of a value of this graph; kUndefined if it has no such value.
  ElementType type_of(const std::string& name) const;
  /// Declares a value that no node of add() makes: an input.
  void declare(const std::string& name, ElementType type) { types_[name] = type; }

  /// Sets the prefix for the names of the following nodes: "layer1.0.conv1".
  void set_scope(const std::string& scope) { scope_ = scope; }

  /// Adds a node and returns its outputs' names. If onnxruntime lacks the operator for the type of
  /// its inputs, but has it for a wider one, conversions are added, too. Throws Unsupported if it
  /// has neither, or if inputs that need one type have several.
  Names add(const std::string& op_type, Names inputs, Attributes attributes, std::size_t outputs);
  /// Adds a node with one output and returns its name.
  std::string add(const std::string& op_type, Names inputs, Attributes attributes = {});

  /// Adds an initializer with the values of `tensor`, named `wish` if that name is free. The same
  /// tensor with the same wish is stored once. With `keep_float`, it stays float32 even if half()
  /// is true. Throws BeyondFloat16 if float16 cannot hold the values: if one is too large, or if a
  /// number (of a parameter: all of them) is smaller than the smallest normal one.
  std::string constant(const at::Tensor& tensor, const std::string& wish, bool keep_float = false);
  /// The value `name` converted to `type`.
  std::string cast(const std::string& name, ElementType type);
  /// A one-dimensional int64 initializer.
  std::string integers(const std::vector<std::int64_t>& values);
  /// A zero-dimensional initializer of `type`.
  std::string scalar(double value, at::ScalarType type);
  /// An int64 tensor with one element for each extent, computed from the batch where needed.
  std::string sizes(const Extents& extents);
  /// Adds a Reshape to `extents`. If only one extent follows the batch, no sizes are computed.
  std::string reshape(const std::string& name, const Extents& extents);

  /// Sets the input, and its dimension, from which the batch size is read.
  void set_batch_source(std::string input, std::int64_t dimension);

  /// A name that no value has yet: `wish` itself if it is free.
  std::string unique_name(const std::string& wish);

  /// The last added node if its output is `name`; otherwise null.
  OnnxNode* maker(const std::string& name);

  /// Removes nodes and initializers whose values are unused. Initializers then get the names that
  /// they were wished, where these have become free.
  void remove_unused();
  /// Removes the nodes behind the first `count`.
  void keep_nodes(std::size_t count);

 private:
  Names append(const std::string& op_type, Names inputs, Attributes attributes,
               std::size_t outputs);
  void require_one_type(const std::string& op_type, const Names& inputs) const;
  void rename_to_wishes();
  std::string batch();

  const int opset_;
  const bool half_;
  bool wide_ = false;
  Graph graph_;
  std::unordered_map<std::string, ElementType> types_;   // for all values
  std::unordered_map<std::string, std::string> wishes_;  // names that initializers lack
  std::string scope_;
  std::set<std::string> names_;
  std::map<std::string, int> counters_;
  std::unordered_map<std::string, std::string> constants_;  // by type, sizes, and bytes or identity
  std::vector<at::Tensor> kept_;  // held, so that no other tensor reuses their identities
  std::string batch_input_;
  std::int64_t batch_dimension_ = 0;
  std::string batch_;
};

}  // namespace lockstep::onnx
