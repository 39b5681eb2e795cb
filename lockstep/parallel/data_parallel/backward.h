// The backward of a step: one node of the caller's graph stands for the graphs of all replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include <lockstep/parallel/base/thread_team.h>
#include <lockstep/parallel/data_parallel/gather.h>

namespace lockstep::data_parallel {

/// What a forward leaves for its backward: where gradients enter the replicas' graphs, where they
/// come out, and where in the caller's graph they go.
struct StepGraph {
  /// Something of the caller's that requires a gradient: a tensor of the batch, or a parameter.
  struct Target {
    torch::autograd::Edge edge;
    torch::TensorOptions options = {};  ///< dtype and device of the gradient
    bool is_scattered = false;          ///< the replicas' gradients are its rows, not its summands
    std::vector<std::int64_t> row_sizes = {};  ///< the sizes without the first, if it is scattered
  };
  /// A leaf of a replica's graph, and the number of the target that it is a part or a copy of.
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

/// Gives the tensors that have roots a graph: a backward through them runs the replicas' graphs,
/// each on its thread, and hands the sum of the parameters' gradients and the rows of the batch's
/// gradients to the caller's graph. On GPUs autograd's own threads, one for each device, do that.
///
/// The graphs are kept by the tensors alone, and are freed with the last of them or by a backward
/// that does not retain them. A second backward after that is the error that LibTorch throws. A
/// backward with create_graph is a ConfigError, because the replicas' graphs are not part of the
/// caller's.
void attach_backward(std::vector<GatheredTensor>& outputs, StepGraph graph,
                     std::shared_ptr<ThreadTeam> team, std::vector<torch::Device> devices);

}  // namespace lockstep::data_parallel
