#include <lockstep/parallel/pipeline/stage_backward.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/backward_graph.h>

namespace lockstep::pipeline {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;

namespace {

using NodeSet = std::unordered_set<const Node*>;

// Gradients given to the engine at the start precede those that nodes produce.
constexpr auto kBeforeAllNodes = std::numeric_limits<std::uint64_t>::max();

// Copies a gradient for another stage if needed: a parameter's sum takes over the memory of its
// first gradient and would write to it.
torch::Tensor own_memory(torch::Tensor gradient) {
  const bool shares =
      gradient.defined() && gradient.has_storage() && gradient.storage().use_count() > 1;
  return shares ? gradient.clone() : gradient;
}

// The edges whose gradients the first part returns, and the nodes to which they lead.
struct Captures {
  edge_list edges;
  std::vector<NodePtr> ends;
};

// Captures the gradients of `inputs`, in their order, and of all other sinks among `nodes`.
Captures captures_of(const std::vector<GradientSink>& inputs, const std::vector<NodePtr>& nodes) {
  Captures captures;
  for (const GradientSink& sink : inputs) {
    if (!sink) continue;
    captures.edges.push_back(sink.edge());
    captures.ends.push_back(sink.node());
  }
  for (const NodePtr& node : nodes) {
    const bool known =
        std::find(captures.ends.begin(), captures.ends.end(), node) != captures.ends.end();
    if (known || !is_gradient_sink(*node)) continue;
    captures.edges.push_back({node, 0});  // attached by the module: captured only to be computed
    captures.ends.push_back(node);
  }
  return captures;
}

// The gradients of `inputs`, with which `captured` begins. Copies those that share memory with a
// gradient of `kept`, because the second part may add to it in place.
Tensors gradients_of(const std::vector<GradientSink>& inputs, const Tensors& captured,
                     const Tensors& kept) {
  Tensors gradients(inputs.size());
  std::size_t next_captured = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    gradients[i] = captured[next_captured++];
    const auto shares_memory = [&](const torch::Tensor& each) {
      return each.defined() && gradients[i].is_alias_of(each);
    };
    if (gradients[i].defined() && std::any_of(kept.begin(), kept.end(), shares_memory)) {
      gradients[i] = gradients[i].clone();
    }
  }
  return gradients;
}

}  // namespace

// A node that leads to inputs and to weights.
class StageBackward::Border {
 public:
  static bool is_one(const Node& node, const NodeSet& to_inputs) {
    const edge_list& next = node.next_edges();
    return to_inputs.contains(&node) &&
           std::any_of(next.begin(), next.end(),
                       [&](const Edge& edge) { return leads_to_weights(edge, to_inputs); });
  }

  /// Adds to `captures` the edges whose gradients the first part must keep for the second.
  Border(NodePtr node, const NodeSet& to_inputs, edge_list& captures)
      : node_(std::move(node)), first_(captures.size()) {
    if (!computes_all_at_once(*node_)) {
      for (std::uint32_t i = 0; i < node_->num_inputs(); ++i) captures.push_back({node_, i});
      return;
    }
    edge_list& next = node_->next_edges();
    to_weights_.resize(next.size());
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (!leads_to_weights(next[i], to_inputs)) continue;
      to_weights_[i] = std::exchange(next[i], GradientSink::in_place_of(next[i]).edge());
      captures.push_back(next[i]);
    }
  }

  /// Adds the starting points of the second part to `weights`, and the gradients from which it
  /// starts to `kept`. `captured` has a gradient for each of the captures.
  void defer(const Tensors& captured, const NodeSet& to_inputs, Roots& weights, Tensors& kept) {
    std::size_t next_captured = first_;
    if (to_weights_.empty()) {
      for (std::uint32_t i = 0; i < node_->num_inputs(); ++i) {
        kept.push_back(captured[next_captured]);
        weights.add({node_, i}, captured[next_captured++]);
      }
      for (Edge& edge : node_->next_edges()) {
        if (edge.is_valid() && to_inputs.contains(edge.function.get())) edge = Edge();
      }
      return;
    }
    Tensors gradients(to_weights_.size());
    for (std::size_t i = 0; i < to_weights_.size(); ++i) {
      if (to_weights_[i].is_valid()) gradients[i] = captured[next_captured++];
    }
    kept.insert(kept.end(), gradients.begin(), gradients.end());
    const auto first = std::find_if(gradients.begin(), gradients.end(),
                                    [](const torch::Tensor& each) { return each.defined(); });
    if (first == gradients.end()) return;
    const torch::Tensor start = *first;  // for the source's input, which it does not read
    weights.add(
        {make_gradient_source(node_->sequence_nr(), std::move(to_weights_), std::move(gradients)),
         0},
        start);
  }

 private:
  static bool leads_to_weights(const Edge& edge, const NodeSet& to_inputs) {
    return edge.is_valid() && !to_inputs.contains(edge.function.get());
  }

  NodePtr node_;
  std::size_t first_;     // index of its first capture
  edge_list to_weights_;  // edges of an all-at-once node, with those to inputs made invalid
};

void StageBackward::Roots::add(Edge edge, torch::Tensor gradient) {
  if (!edge.is_valid() || !gradient.defined()) return;
  edges.push_back(std::move(edge));
  gradients.push_back(std::move(gradient));
}

StageBackward::StageBackward(const Tensors& outputs, std::vector<GradientSink> inputs, Tensors tied)
    : inputs_(std::move(inputs)), tied_(std::move(tied)) {
  for (const torch::Tensor& output : outputs) {
    const bool has_graph = output.defined() && output.requires_grad();
    outputs_.push_back(has_graph ? torch::autograd::impl::gradient_edge(output) : Edge());
  }
}

// Drops the references to the outputs' graph, so that the engine releases nodes after use.
StageBackward::Roots StageBackward::take_roots(Tensors gradients) {
  LOCKSTEP_CHECK(gradients.size() == outputs_.size(), "a stage with ", outputs_.size(),
                 " outputs got ", gradients.size(), " gradients");
  Roots roots;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    roots.add(std::move(outputs_[i]), std::move(gradients[i]));
  }
  outputs_.clear();
  return roots;
}

void StageBackward::accumulate(const Roots& roots) {
  if (roots.edges.empty()) return;
  Engine::get_default_engine().execute(roots.edges, roots.gradients, /*keep_graph=*/false,
                                       /*create_graph=*/false, /*accumulate_grad=*/true);
}

// Replaces the target of every edge to a tied parameter with a sink.
void StageBackward::separate_tied(Roots& roots, const std::vector<NodePtr>& nodes) {
  for (std::size_t k = 0; k < tied_.size(); ++k) {
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(tied_[k]);
    if (!accumulator) continue;  // not in any graph
    const auto separate = [&](Edge& edge, std::uint64_t sequence_nr, std::size_t position) {
      if (edge.function.get() != accumulator.get()) return;
      const GradientSink sink = GradientSink::in_place_of(edge);
      tied_uses_.push_back({k, sequence_nr, position, sink});
      edge = sink.edge();
    };
    for (std::size_t i = 0; i < roots.edges.size(); ++i) {
      separate(roots.edges[i], kBeforeAllNodes, i);
    }
    for (const NodePtr& node : nodes) {
      edge_list& next = node->next_edges();
      for (std::size_t i = 0; i < next.size(); ++i) separate(next[i], node->sequence_nr(), i);
    }
  }
}

Tensors StageBackward::backward(Tensors gradients) {
  Roots roots = take_roots(std::move(gradients));
  if (!tied_.empty()) separate_tied(roots, nodes_below(roots.edges));
  accumulate(roots);
  roots = {};
  Tensors of_inputs;
  for (const GradientSink& sink : inputs_) of_inputs.push_back(own_memory(sink.take()));
  inputs_.clear();
  return of_inputs;
}

Tensors StageBackward::backward_input(Tensors gradients) {
  Roots roots = take_roots(std::move(gradients));
  const std::vector<NodePtr> nodes = nodes_below(roots.edges);
  if (!tied_.empty()) separate_tied(roots, nodes);

  const std::vector<GradientSink> inputs = std::exchange(inputs_, {});
  auto [captures, ends] = captures_of(inputs, nodes);
  const NodeSet to_inputs = nodes_leading_to(nodes, ends);

  Roots first_part;
  for (std::size_t i = 0; i < roots.edges.size(); ++i) {
    Roots& part = to_inputs.contains(roots.edges[i].function.get()) ? first_part : weights_;
    part.add(std::move(roots.edges[i]), std::move(roots.gradients[i]));
  }
  if (first_part.edges.empty()) return Tensors(inputs.size());

  std::vector<Border> borders;
  std::vector<NodePtr> done;  // nodes not needed after the first part
  for (const NodePtr& node : nodes) {
    if (Border::is_one(*node, to_inputs)) {
      borders.emplace_back(node, to_inputs, captures);
    } else if (to_inputs.contains(node.get())) {
      done.push_back(node);
    }
  }
  // Keep the graph: otherwise border nodes would lose what they need for the second part.
  const Tensors captured = Engine::get_default_engine().execute(
      first_part.edges, first_part.gradients, /*keep_graph=*/true, /*create_graph=*/false,
      /*accumulate_grad=*/false, captures);
  Tensors kept = weights_.gradients;
  for (Border& border : borders) border.defer(captured, to_inputs, weights_, kept);
  // Dropping the references is not enough: a tensor saved by a border node holds the node that made
  // it.
  for (const NodePtr& node : done) node->release_variables();

  return gradients_of(inputs, captured, kept);
}

void StageBackward::backward_weight() { accumulate(std::exchange(weights_, {})); }

std::vector<Tensors> StageBackward::take_tied_gradients() {
  std::sort(tied_uses_.begin(), tied_uses_.end(), [](const TiedUse& a, const TiedUse& b) {
    return a.sequence_nr != b.sequence_nr ? a.sequence_nr > b.sequence_nr : a.position < b.position;
  });
  std::vector<Tensors> gradients(tied_.size());
  for (const TiedUse& use : std::exchange(tied_uses_, {})) {
    torch::Tensor gradient = use.sink.take();
    if (gradient.defined()) gradients[use.parameter].push_back(std::move(gradient));
  }
  return gradients;
}

}  // namespace lockstep::pipeline
