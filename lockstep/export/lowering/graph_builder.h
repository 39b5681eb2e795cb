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

/// ONNX's name of a type. ConfigError for one that ONNX or onnxruntime does not have.
ElementType element_type(at::ScalarType type);

/// Names of values in the graph; an empty one stands for an optional input that is left out.
using Names = std::vector<std::string>;

/// For one graph and one thread. Nodes go to the end of the graph, so that what they use must have
/// been added before.
class GraphBuilder {
 public:
  /// With `half`, float32 tensors become float16.
  GraphBuilder(int opset, bool half) : opset_(opset), half_(half) {}

  int opset() const { return opset_; }
  bool half() const { return half_; }
  Graph& graph() { return graph_; }

  /// The type that values of LibTorch's `type` have in this graph.
  ElementType type_of(at::ScalarType type) const;

  /// Begins the names of the following nodes: "layer1.0.conv1".
  void set_scope(const std::string& scope) { scope_ = scope; }

  /// Adds a node and returns its outputs' names.
  Names add(const std::string& op_type, Names inputs, Attributes attributes, std::size_t outputs);
  /// Adds a node with one output and returns its name.
  std::string add(const std::string& op_type, Names inputs, Attributes attributes = {});

  /// An initializer with the values of `tensor`, called `wish` where that name is free. The same
  /// tensor under the same wish is stored once. `keep_float`: not float16 even with half().
  std::string constant(const at::Tensor& tensor, const std::string& wish, bool keep_float = false);
  /// Removes an initializer that no node uses any more, and frees its name.
  void forget_constant(const std::string& name);
  /// A one-dimensional int64 initializer.
  std::string integers(const std::vector<std::int64_t>& values);
  /// A zero-dimensional initializer of `type`.
  std::string scalar(double value, at::ScalarType type);
  /// An int64 tensor with one element for each extent, computed from the batch where needed.
  std::string sizes(const Extents& extents);
  /// Reshape to `extents`. One extent that follows the batch costs no computation of sizes.
  std::string reshape(const std::string& name, const Extents& extents);

  /// The input and its dimension that the batch is read from.
  void set_batch_source(std::string input, std::int64_t dimension);

  /// A name that no value has yet, `wish` if possible.
  std::string unique_name(const std::string& wish);

  /// The last node that was added, whose output is `name`; null when another one makes it.
  OnnxNode* maker(const std::string& name);

  /// Removes nodes and initializers whose values nobody uses.
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
  std::vector<at::Tensor> kept_;  // so that no other tensor takes the identity of one among these
  std::string batch_input_;
  std::int64_t batch_dimension_ = 0;
  std::string batch_;
};

}  // namespace lockstep::onnx
