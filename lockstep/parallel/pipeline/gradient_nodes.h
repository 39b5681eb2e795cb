// Our own nodes in autograd's graph: where gradients leave a stage's graph, and where they enter it
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

namespace lockstep::pipeline {

/// A shared pointer to a node; LibTorch's version decides which class it is.
using NodePtr = decltype(torch::autograd::Edge::function);

namespace detail {

// Older LibTorch holds nodes by std::shared_ptr, newer by c10::intrusive_ptr.
template <class Made, class... Arguments>
void put_node(std::shared_ptr<torch::autograd::Node>& node, Arguments&&... arguments) {
  node = std::make_shared<Made>(std::forward<Arguments>(arguments)...);
}
template <class Made, class Pointer, class... Arguments>
void put_node(Pointer& node, Arguments&&... arguments) {
  node = c10::make_intrusive<Made>(std::forward<Arguments>(arguments)...);
}

}  // namespace detail

/// A new node of the type `Made`.
template <class Made, class... Arguments>
NodePtr make_node(Arguments&&... arguments) {
  NodePtr node;
  detail::put_node<Made>(node, std::forward<Arguments>(arguments)...);
  return node;
}

/// A node that keeps the gradient that arrives at it. A handle, whose copies share the node; a
/// default-constructed one has none.
///
/// A leaf's own AccumulateGrad would not do: it copies a gradient whose strides are not the leaf's,
/// after which the stage before computes with other kernels than one process would.
class GradientSink {
 public:
  GradientSink() = default;

  /// The sink of `tensor`'s gradient. `tensor` must have no graph yet. It becomes an inner tensor
  /// of the graph, which operations may change in place.
  static GradientSink attach(torch::Tensor& tensor);
  /// A sink that can stand where `edge` leads to.
  static GradientSink in_place_of(const torch::autograd::Edge& edge);

  explicit operator bool() const { return static_cast<bool>(node_); }
  const NodePtr& node() const { return node_; }
  torch::autograd::Edge edge() const { return {node_, 0}; }

  /// Gives the gradient away; undefined if none arrived, or without a node.
  torch::Tensor take() const;

 private:
  explicit GradientSink(NodePtr node) : node_(std::move(node)) {}

  NodePtr node_;
};

/// Whether `node` is that of a sink.
bool is_gradient_sink(const torch::autograd::Node& node);

/// A node that gives `gradients`, of which one at least is defined, to `edges`. The engine runs it
/// in its order as if it had been recorded with `sequence_nr`. What is given to its only input,
/// which takes tensors like the first defined gradient, does not matter.
NodePtr make_gradient_source(std::uint64_t sequence_nr, torch::autograd::edge_list edges,
                             torch::autograd::variable_list gradients);

}  // namespace lockstep::pipeline
