// The backward of a step: one node in the caller's graph represents the graphs of all replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include <lockstep/parallel/base/thread_team.h>
#include <lockstep/parallel/data_parallel/gather.h>

namespace lockstep::detail::data_parallel {

/// What a forward keeps for its backward: where gradients enter the replicas' graphs, where they
/// come out, and where in the caller's graph they go.
struct StepGraph {
  /// A tensor of the caller that requires a gradient: a tensor of the batch, or a parameter.
  struct Target {
    torch::autograd::Edge edge;
    torch::TensorOptions options = {};  ///< dtype and device of the gradient
    bool is_scattered = false;  ///< the replicas' gradients are rows of the gradient, not summands
    std::vector<std::int64_t> row_sizes = {};  ///< if scattered, the sizes without the first
  };
  /// A leaf of a replica's graph, and the index of the target that it is a part or a copy of.
  struct Leaf {
    torch::autograd::Edge edge;
    std::size_t target;
  };
  /// One for each active replica, in ascending order.
  struct Part {
    std::size_t replica;
    std::int64_t rows;  ///< rows of the batch
    std::vector<Leaf> leaves = {};
  };
  std::vector<Target> targets;
  std::vector<Part> parts;
};

/// Attaches a graph to the tensors that have roots: a backward through them runs the replicas'
/// graphs, each on its own thread, and passes the sum of the parameters' gradients and the rows of
/// the batch's gradients on to the caller's graph. On GPUs autograd's own threads, one for each
/// device, do this.
///
/// Only these tensors keep the graphs alive: the graphs are freed with the last tensor or by a
/// backward that does not retain them. LibTorch throws its usual error for a second backward after
/// that. A backward with create_graph throws ConfigError, because the replicas' graphs are not part
/// of the caller's graph.
void attach_backward(std::vector<GatheredTensor>& outputs, StepGraph graph,
                     std::shared_ptr<ThreadTeam> team, std::vector<torch::Device> devices);

}  // namespace lockstep::detail::data_parallel
