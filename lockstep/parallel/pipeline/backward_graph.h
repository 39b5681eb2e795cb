// Queries on the autograd graph of one stage and one micro-batch.
#pragma once

#include <unordered_set>
#include <vector>

#include <lockstep/parallel/pipeline/gradient_nodes.h>

namespace lockstep::pipeline {

/// All nodes that a backward from `roots` can reach, each once.
std::vector<NodePtr> nodes_below(const torch::autograd::edge_list& roots);

/// The nodes among `nodes` from which a path leads to one of `ends`, including the ends themselves.
/// `nodes` must contain every node reachable from its nodes.
std::unordered_set<const torch::autograd::Node*> nodes_leading_to(const std::vector<NodePtr>& nodes,
                                                                  const std::vector<NodePtr>& ends);

/// Whether `node` always computes the gradients of all its inputs, even if only some are requested,
/// so that two requests would repeat the work: a C++ torch::autograd::Function, or oneDNN's
/// recurrent layers.
bool computes_all_at_once(const torch::autograd::Node& node);

}  // namespace lockstep::pipeline
