// Computes the outputs of an ONNX graph with LibTorch's functions, so that tests without
// onnxruntime can compare an exported model with the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/export/onnx/onnx_graph.h>

namespace lockstep::testing_support {

using Tensors = std::vector<at::Tensor>;

/// The inputs and attributes of a node.
class NodeArguments {
 public:
  NodeArguments(const onnx::OnnxNode& node, Tensors inputs)
      : node_(node), inputs_(std::move(inputs)) {}

  const onnx::OnnxNode& node() const { return node_; }
  std::size_t count() const { return inputs_.size(); }
  bool has(std::size_t i) const { return i < inputs_.size() && inputs_[i].defined(); }
  /// Throws std::out_of_range if the node has no such input.
  const at::Tensor& operator[](std::size_t i) const { return inputs_.at(i); }
  const Tensors& all() const { return inputs_; }
  /// The elements of an input of int64.
  std::vector<std::int64_t> elements(std::size_t i) const;

  std::int64_t integer(const std::string& name, std::int64_t otherwise) const;
  double number(const std::string& name, double otherwise) const;
  std::string text(const std::string& name, const std::string& otherwise) const;
  /// Empty if the node has no such attribute.
  std::vector<std::int64_t> integers(const std::string& name) const;
  std::vector<std::string> texts(const std::string& name) const;

 private:
  template <class Value>
  Value attribute(const std::string& name, Value otherwise) const;

  const onnx::OnnxNode& node_;
  Tensors inputs_;
};

using EvaluateNode = Tensors (*)(const NodeArguments& node);
using NodeEvaluations = std::map<std::string, EvaluateNode>;

/// The operators on single elements, on shapes and indices, and those with sums over elements.
const NodeEvaluations& elementwise_evaluations();
const NodeEvaluations& shape_evaluations();
const NodeEvaluations& sum_evaluations();

/// Computes the outputs of a graph. As onnxruntime does, it computes float16 in float32. Throws
/// std::logic_error, which names the node, if the graph is invalid: if a value is unknown, or if
/// inputs that ONNX wants to be of one type are not.
Tensors evaluate(const onnx::Graph& graph, const Tensors& inputs);

}  // namespace lockstep::testing_support
