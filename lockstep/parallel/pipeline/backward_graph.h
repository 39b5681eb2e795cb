// Questions to autograd's graph of one stage and one micro-batch.
#pragma once

#include <unordered_set>
#include <vector>

#include <lockstep/parallel/pipeline/gradient_nodes.h>

namespace lockstep::pipeline {

/// All nodes that a backward from `roots` can reach, each once.
std::vector<NodePtr> nodes_below(const torch::autograd::edge_list& roots);

/// The nodes among `nodes` from which a path leads to one of `ends`, and these ends. `nodes` must
/// hold everything that each of its nodes leads to.
std::unordered_set<const torch::autograd::Node*> nodes_leading_to(const std::vector<NodePtr>& nodes,
                                                                  const std::vector<NodePtr>& ends);

/// Whether `node` computes the gradients of all its inputs together, whichever are asked for, so
/// that asking twice would do the work twice: a C++ torch::autograd::Function, or oneDNN's
/// recurrent layers.
bool computes_all_at_once(const torch::autograd::Node& node);

}  // namespace lockstep::pipeline
