// Runs the backward of one micro-batch through one stage, whole or in two parts, on autograd's
// engine.
//
// In PyTorch the whole backward and its two parts are called stage_backward, stage_backward_input
// and stage_backward_weight. The parts are those of the zero-bubble schedules (Qi et al., arXiv
// 2401.10241): I computes the gradients of the stage's inputs, which the previous stage waits for,
// and W later computes the gradients of the stage's weights.
//
// The nodes of the stage's graph that lead to its inputs run in I, the others in W. A node at the
// border, such as a linear layer's, leads to both and runs twice: in I the engine asks it for the
// gradient of its input, and in W for that of its weight. To make this possible, I keeps the
// gradients that flow into the node and then removes the node's edges to the inputs from the graph.
// W is thus one execution of the engine over all border nodes. No layer's matrix products or
// convolutions are computed twice (normalisations compute their sums in both parts), and everything
// that only I needed is released when I ends. The tensors that a border node saved are kept until
// W, even those that only I needed: LibTorch releases a node's tensors together.
//
// A node that computes all gradients at once (a C++ torch::autograd::Function) runs only in I; W
// starts from the gradients that it returned.
//
// Whole and split backwards give the same bits. The engine, and therefore each part, runs nodes in
// the reverse order of the forward. A weight that the stage uses several times gets its
// contributions in the same order, in one sum.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/gradient_nodes.h>

namespace lockstep::pipeline {

using Tensors = std::vector<torch::Tensor>;

/// Owns the graph until it has been used: call backward() once, or backward_input() and then
/// backward_weight(). Accumulates the weights' gradients into their .grad and runs their hooks,
/// like Tensor::backward(). A hook on an inner tensor at the border of a split backward is called
/// in both parts. Exceptions from the engine propagate; after one, the object can only be
/// destroyed. Not thread-safe.
class StageBackward {
 public:
  StageBackward() = default;

  /// Takes the graph that made `outputs`. `inputs` are the sinks of the stage's inputs; a sink
  /// without a node stands for an input that needs no gradient. A sink that the module itself
  /// attached to a tensor also ends the first part, and its gradient is dropped. The gradients of
  /// `tied`, parameters shared with other stages, are not accumulated; take_tied_gradients()
  /// returns them.
  StageBackward(const Tensors& outputs, std::vector<GradientSink> inputs, Tensors tied = {});

  /// `gradients` has one tensor for each output, undefined for an output that was not used or needs
  /// no gradient. Returns a gradient for each input, undefined for an input that needs none or was
  /// not used. The shapes are those of the outputs and inputs.
  Tensors backward(Tensors gradients);

  /// The first part, with arguments and result as for backward().
  Tensors backward_input(Tensors gradients);
  /// The second part.
  void backward_weight();

  /// Returns, for each of `tied`, the gradients of its uses, in the order in which the engine would
  /// have added them. Call it once, after backward() or backward_weight().
  std::vector<Tensors> take_tied_gradients();

 private:
  /// The starting nodes of an execution of the engine and the gradients passed to them.
  struct Roots {
    torch::autograd::edge_list edges{};
    Tensors gradients{};

    void add(torch::autograd::Edge edge, torch::Tensor gradient);
  };
  struct TiedUse {
    std::size_t parameter;      ///< index in tied_
    std::uint64_t sequence_nr;  ///< number of the node that produces the gradient
    std::size_t position;       ///< among that node's edges
    GradientSink sink;
  };
  class Border;

  Roots take_roots(Tensors gradients);
  void separate_tied(Roots& roots, const std::vector<NodePtr>& nodes);
  static void accumulate(const Roots& roots);

  torch::autograd::edge_list outputs_;
  std::vector<GradientSink> inputs_;
  Tensors tied_;
  std::vector<TiedUse> tied_uses_;
  Roots weights_;  // roots of the second part
};

}  // namespace lockstep::pipeline
