#include <lockstep/parallel/data_parallel/graph_check.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_set>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/backward_graph.h>

namespace lockstep::detail::data_parallel {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::edge_list;
using torch::autograd::Node;

// All nodes without successors: those of leaves, and others whose gradients would also be lost.
std::vector<pipeline::NodePtr> ends_of(const std::vector<GatheredTensor>& outputs,
                                       std::size_t part) {
  edge_list roots;
  for (const GatheredTensor& output : outputs) {
    if (output.root(part).is_valid()) roots.push_back(output.root(part));
  }
  std::vector<pipeline::NodePtr> ends = pipeline::nodes_below(roots);
  std::erase_if(ends, [](const auto& node) {
    const edge_list& next = node->next_edges();
    return std::any_of(next.begin(), next.end(), [](const auto& edge) { return edge.is_valid(); });
  });
  return ends;
}

// Describes the tensor to which `node` belongs, and the remedy.
std::string described_end(const Node& node, const Replicas& replicas) {
  const auto* const leaf = dynamic_cast<const AccumulateGrad*>(&node);
  const std::string name = leaf == nullptr ? "" : replicas.name_of(leaf->variable);
  if (!name.empty()) {
    return lockstep::str("parameter '", name,
                         "' of the wrapped module itself in place of their own, so that its "
                         "gradient would be lost; if the criterion uses it, add that term to the "
                         "result of loss(), or use forward()");
  }
  return lockstep::str("a tensor", leaf == nullptr ? "" : " of shape ",
                       leaf == nullptr ? "" : lockstep::str(leaf->variable.sizes()),
                       " that requires a gradient and is neither a parameter of the module nor an "
                       "argument, so that its gradient would be lost; register it in the module, "
                       "pass it as an argument, use it on the output of forward(), or detach() it");
}

}  // namespace

void refuse_lost_gradients(const std::vector<GatheredTensor>& outputs, const StepGraph& graph,
                           const Replicas& replicas) {
  if (graph.parts.size() < 2) return;
  std::unordered_set<const Node*> known;
  for (const StepGraph::Leaf& leaf : graph.parts[0].leaves) known.insert(leaf.edge.function.get());
  std::vector<pipeline::NodePtr> foreign = ends_of(outputs, 0);
  std::erase_if(foreign, [&](const auto& node) { return known.contains(node.get()); });
  if (foreign.empty()) return;
  std::unordered_set<const Node*> of_second;
  for (const auto& node : ends_of(outputs, 1)) of_second.insert(node.get());
  for (const auto& node : foreign) {
    if (!of_second.contains(node.get())) continue;
    throw ConfigError(lockstep::str("DataParallel: replicas ", graph.parts[0].replica, " and ",
                                    graph.parts[1].replica, " both use ",
                                    described_end(*node, replicas)));
  }
}

}  // namespace lockstep::detail::data_parallel
