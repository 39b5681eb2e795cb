#include <lockstep/parallel/pipeline/gradient_nodes.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace lockstep::pipeline {
namespace {

using torch::autograd::variable_list;

class SinkNode final : public torch::autograd::Node {
 public:
  // With this number it runs before all other ready nodes, like AccumulateGrad.
  SinkNode() : Node(/*sequence_nr=*/std::numeric_limits<std::uint64_t>::max()) {}
  explicit SinkNode(const torch::autograd::InputMetadata& metadata) : SinkNode() {
    input_metadata_.emplace_back(metadata);
  }

  variable_list apply(variable_list&& gradients) override {
    gradient = std::move(gradients.at(0));
    return {};
  }
  std::string name() const override { return "lockstep::GradientSink"; }

  torch::Tensor gradient;
};

class SourceNode final : public torch::autograd::Node {
 public:
  SourceNode(std::uint64_t sequence_nr, torch::autograd::edge_list edges, variable_list gradients)
      : Node(sequence_nr, std::move(edges)), gradients_(std::move(gradients)) {
    const auto first = std::find_if(gradients_.begin(), gradients_.end(),
                                    [](const torch::Tensor& each) { return each.defined(); });
    add_input_metadata(*first);
  }

  variable_list apply(variable_list&&) override { return std::move(gradients_); }
  std::string name() const override { return "lockstep::GradientSource"; }

 private:
  variable_list gradients_;
};

}  // namespace

GradientSink GradientSink::attach(torch::Tensor& tensor) {
  const NodePtr node = make_node<SinkNode>();
  torch::autograd::create_gradient_edge(tensor, node);  // gives the node its one input
  return GradientSink(node);
}

GradientSink GradientSink::in_place_of(const torch::autograd::Edge& edge) {
  return GradientSink(make_node<SinkNode>(edge.function->input_metadata(edge.input_nr)));
}

torch::Tensor GradientSink::take() const {
  if (!node_) return {};
  return std::exchange(static_cast<SinkNode&>(*node_).gradient, torch::Tensor());
}

bool is_gradient_sink(const torch::autograd::Node& node) {
  return dynamic_cast<const SinkNode*>(&node) != nullptr;
}

NodePtr make_gradient_source(std::uint64_t sequence_nr, torch::autograd::edge_list edges,
                             variable_list gradients) {
  return make_node<SourceNode>(sequence_nr, std::move(edges), std::move(gradients));
}

}  // namespace lockstep::pipeline
