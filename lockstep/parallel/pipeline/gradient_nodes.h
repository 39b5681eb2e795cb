// Lockstep's own autograd nodes: where gradients leave a stage's graph, and where they enter it
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

namespace lockstep::pipeline {

/// A shared pointer to a node; its class depends on LibTorch's version.
using NodePtr = decltype(torch::autograd::Edge::function);

namespace detail {

// Older LibTorch holds nodes by std::shared_ptr, newer LibTorch by c10::intrusive_ptr.
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

/// A handle to a node that stores the gradient arriving at it. Copies share the node; a
/// default-constructed sink has no node.
///
/// A leaf's own AccumulateGrad would not do: it copies a gradient whose strides differ from the
/// leaf's, and the previous stage would then run kernels other than those of a single process.
class GradientSink {
 public:
  GradientSink() = default;

  /// Attaches a sink for the gradient of `tensor`, which must have no graph yet. The tensor then
  /// becomes an inner tensor of the graph, so operations may change it in place.
  static GradientSink attach(torch::Tensor& tensor);
  /// Returns a sink that can replace the target of `edge`.
  static GradientSink in_place_of(const torch::autograd::Edge& edge);

  explicit operator bool() const { return static_cast<bool>(node_); }
  const NodePtr& node() const { return node_; }
  torch::autograd::Edge edge() const { return {node_, 0}; }

  /// Moves the gradient out; undefined if none arrived or there is no node.
  torch::Tensor take() const;

 private:
  explicit GradientSink(NodePtr node) : node_(std::move(node)) {}

  NodePtr node_;
};

/// Whether `node` is the node of a sink.
bool is_gradient_sink(const torch::autograd::Node& node);

/// Makes a node that passes `gradients`, at least one of which is defined, to `edges`. The engine
/// orders it as if it had been recorded with `sequence_nr`. Its only input has the metadata of the
/// first defined gradient; the value passed to it is ignored.
NodePtr make_gradient_source(std::uint64_t sequence_nr, torch::autograd::edge_list edges,
                             torch::autograd::variable_list gradients);

}  // namespace lockstep::pipeline
