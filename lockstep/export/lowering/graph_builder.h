// Adds nodes and initializers to an ONNX graph, and names them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/export/onnx/onnx_graph.h>
#include <lockstep/export/trace/extent.h>

namespace lockstep::onnx {

/// The ONNX equivalent of a type. Throws ConfigError if ONNX or onnxruntime lacks the type.
ElementType element_type(at::ScalarType type);

/// Names of values in the graph; an empty name stands for an omitted optional input.
using Names = std::vector<std::string>;

/// Builds one graph, on one thread. Nodes are appended to the graph, so their inputs must have been
/// added before.
class GraphBuilder {
 public:
  /// With `half`, float32 tensors become float16.
  GraphBuilder(int opset, bool half) : opset_(opset), half_(half) {}

  int opset() const { return opset_; }
  bool half() const { return half_; }
  Graph& graph() { return graph_; }

  /// The type that values of LibTorch's `type` have in this graph.
  ElementType type_of(at::ScalarType type) const;

  /// Sets the prefix for the names of the following nodes: "layer1.0.conv1".
  void set_scope(const std::string& scope) { scope_ = scope; }

  /// Adds a node and returns its outputs' names.
  Names add(const std::string& op_type, Names inputs, Attributes attributes, std::size_t outputs);
  /// Adds a node with one output and returns its name.
  std::string add(const std::string& op_type, Names inputs, Attributes attributes = {});

  /// Adds an initializer with the values of `tensor`, named `wish` if that name is free. The same
  /// tensor with the same wish is stored once. With `keep_float`, it stays float32 even if half()
  /// is true.
  std::string constant(const at::Tensor& tensor, const std::string& wish, bool keep_float = false);
  /// Removes an initializer that no node uses any more, and frees its name.
  void forget_constant(const std::string& name);
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

  /// Removes nodes and initializers whose values are unused.
  void remove_unused();

 private:
  std::string batch();

  const int opset_;
  const bool half_;
  Graph graph_;
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
