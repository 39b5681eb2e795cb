#include <lockstep/parallel/pipeline/backward_graph.h>

#include <algorithm>
#include <string>

namespace lockstep::pipeline {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;

std::vector<NodePtr> nodes_below(const edge_list& roots) {
  std::vector<NodePtr> nodes;
  std::unordered_set<const Node*> seen;
  const auto visit = [&](const Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) nodes.push_back(edge.function);
  };
  for (const Edge& root : roots) visit(root);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodePtr node = nodes[i];  // not a reference: the vector grows
    for (const Edge& edge : node->next_edges()) visit(edge);
  }
  return nodes;
}

std::unordered_set<const Node*> nodes_leading_to(const std::vector<NodePtr>& nodes,
                                                 const std::vector<NodePtr>& ends) {
  std::unordered_set<const Node*> leading;
  for (const NodePtr& end : ends) leading.insert(end.get());
  // A node's topological number is greater than those of all nodes reachable from it.
  std::vector<const Node*> ascending;
  for (const NodePtr& node : nodes) ascending.push_back(node.get());
  std::sort(ascending.begin(), ascending.end(),
            [](const Node* a, const Node* b) { return a->topological_nr() < b->topological_nr(); });
  for (const Node* node : ascending) {
    const edge_list& next = node->next_edges();
    const bool leads = std::any_of(next.begin(), next.end(), [&](const Edge& edge) {
      return edge.is_valid() && leading.contains(edge.function.get());
    });
    if (leads) leading.insert(node);
  }
  return leading;
}

bool computes_all_at_once(const Node& node) {
  const std::string name = node.name();
  return name.starts_with("torch::autograd::CppNode<") ||
         name.starts_with("MkldnnRnnLayerBackward");
}

}  // namespace lockstep::pipeline
