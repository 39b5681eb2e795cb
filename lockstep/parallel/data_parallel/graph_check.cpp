#include <lockstep/parallel/data_parallel/graph_check.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_set>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/backward_graph.h>

namespace lockstep::data_parallel {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;

// The nodes that both graphs have.
std::vector<pipeline::NodePtr> nodes_of_both(const edge_list& first, const edge_list& second) {
  std::unordered_set<const Node*> of_first;
  for (const auto& node : pipeline::nodes_below(first)) of_first.insert(node.get());
  std::vector<pipeline::NodePtr> both;
  const std::vector<pipeline::NodePtr> of_second = pipeline::nodes_below(second);
  std::copy_if(of_second.begin(), of_second.end(), std::back_inserter(both),
               [&](const auto& node) { return of_first.contains(node.get()); });
  return both;
}

// " of shape [3]" for the first leaf among `nodes`; empty where there is none.
std::string shape_of_leaf(const std::vector<pipeline::NodePtr>& nodes) {
  for (const auto& node : nodes) {
    const auto* const leaf = dynamic_cast<const AccumulateGrad*>(node.get());
    if (leaf != nullptr) return lockstep::str(" of shape ", leaf->variable.sizes());
  }
  return "";
}

}  // namespace

void GraphCheck::look_at(const std::vector<GatheredTensor>& outputs,
                         const std::vector<std::size_t>& replicas) {
  if (replicas.size() < 2) return;
  Shape shape;
  std::array<edge_list, 2> roots;
  for (const GatheredTensor& output : outputs) {
    for (std::size_t part = 0; part < roots.size(); ++part) {
      const Edge& root = output.root(part);
      if (!root.is_valid()) {
        shape.emplace_back("", 0);
        continue;
      }
      shape.emplace_back(root.function->name(), root.function->topological_nr());
      roots[part].push_back(root);
    }
  }
  if (seen_.contains(shape)) return;
  const std::vector<pipeline::NodePtr> both = nodes_of_both(roots[0], roots[1]);
  if (!both.empty()) {
    throw ConfigError(lockstep::str(
        "DataParallel: replicas ", replicas[0], " and ", replicas[1], " both use a tensor",
        shape_of_leaf(both),
        " that requires a gradient and is neither a parameter of the module nor an argument, so "
        "that its gradient would be lost; register it in the module, pass it as an argument, use "
        "it on the output of forward(), or detach() it"));
  }
  seen_.insert(std::move(shape));
}

}  // namespace lockstep::data_parallel
