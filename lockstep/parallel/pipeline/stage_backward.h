// The backward of one micro-batch through one stage, whole or in two parts, by autograd's engine.
//
// PyTorch's names for the three are stage_backward, stage_backward_input and stage_backward_weight.
// The two parts are those of the zero-bubble schedules (Qi et al., arXiv 2401.10241): I, the
// gradients of the stage's inputs, which the stage before waits for; later W, those of its weights.
//
// The nodes of the stage's graph that lead to its inputs run in I, the others in W. A node at the
// border, such as a linear layer's, leads to both. It runs twice: in I the engine asks it for the
// gradient of its input, in W for that of its weight. For this, I keeps the gradients that flow
// into it, and then takes its edges to the inputs out of the graph. So W is one execution of the
// engine over all borders, no layer's matrix products or convolutions are computed twice
// (normalisations compute their sums in both parts), and all that only I needed is released when I
// ends. What a border's node saved stays until W, also where only I needed it: LibTorch releases a
// node's tensors together.
//
// A node that computes everything at once (a C++ torch::autograd::Function) runs in I only; W
// begins with the gradients that it gave.
//
// Whole and split give the same bits. The engine runs nodes in the reverse order of their forward,
// and so does each part. A weight that the stage uses several times gets its contributions in the
// same order, in one sum.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <lockstep/parallel/pipeline/gradient_nodes.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

namespace pipeline {

/// Owns the graph until it has been used: call backward() once, or backward_input() and then
/// backward_weight(). The weights' gradients are added to their .grad as by Tensor::backward(),
/// with their hooks. A hook on an inner tensor at the border of a split backward is called in both
/// parts. What the engine throws passes through, after which the object can only be destroyed. Not
/// thread-safe.
class StageBackward {
 public:
  StageBackward() = default;

  /// The graph that made `outputs`. `inputs` are the sinks of the stage's inputs; one without a
  /// node stands for an input that needs no gradient. A sink that the module has attached to a
  /// tensor itself ends the first part as well, and its gradient is dropped. The gradients of
  /// `tied`, parameters of this and other stages, are not added anywhere: take_tied_gradients() has
  /// them.
  StageBackward(const Tensors& outputs, std::vector<GradientSink> inputs, Tensors tied = {});

  /// `gradients` has one tensor for each output; undefined for an output that was not used or needs
  /// none. Returns a gradient for each input; undefined for one that needs none or was not used.
  /// Shapes are those of the outputs and inputs.
  Tensors backward(Tensors gradients);

  /// The first part, with arguments and result as above.
  Tensors backward_input(Tensors gradients);
  /// The second part.
  void backward_weight();

  /// Call it once, after backward() or backward_weight(). For each of `tied` it returns the
  /// gradients of its uses, in the order in which the engine would have added them up.
  std::vector<Tensors> take_tied_gradients();

 private:
  /// Where an execution of the engine begins, and with what.
  struct Roots {
    torch::autograd::edge_list edges{};
    Tensors gradients{};

    void add(torch::autograd::Edge edge, torch::Tensor gradient);
  };
  struct TiedUse {
    std::size_t parameter;      ///< its place in tied_
    std::uint64_t sequence_nr;  ///< number of the node that gives the gradient
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

}  // namespace pipeline
}  // namespace lockstep
