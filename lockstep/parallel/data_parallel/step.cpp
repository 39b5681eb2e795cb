#include <lockstep/parallel/data_parallel/step.h>

#include <limits>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/base/caller_state.h>
#include <lockstep/parallel/base/thread_share.h>
#include <lockstep/parallel/base/thread_team.h>
#include <lockstep/parallel/data_parallel/backward.h>
#include <lockstep/parallel/data_parallel/gather.h>
#include <lockstep/parallel/data_parallel/graph_check.h>
#include <lockstep/parallel/data_parallel/replicas.h>

namespace lockstep::detail::data_parallel {
namespace {

constexpr std::size_t kNoTarget = std::numeric_limits<std::size_t>::max();

std::string texts_of(const std::vector<MapKey>& keys) {
  std::vector<std::string> texts;
  for (const MapKey& key : keys) texts.push_back(key.text());
  return lockstep::join(texts);
}

void require_same_structure(const Flattened& first, const Flattened& other) {
  if (first.tensors.size() != other.tensors.size()) {
    throw ConfigError(lockstep::str("DataParallel: the output has ", first.tensors.size(),
                                    " tensors on one replica and ", other.tensors.size(),
                                    " on another; expected the same structure"));
  }
  if (first.keys != other.keys) {
    throw ConfigError(lockstep::str("DataParallel: the output has the keys [", texts_of(first.keys),
                                    "] on one replica and [", texts_of(other.keys),
                                    "] on another; expected the same structure"));
  }
}

StepGraph::Target target_of(const torch::Tensor& tensor) {
  StepGraph::Target target;
  target.edge = torch::autograd::impl::gradient_edge(tensor);
  target.options = tensor.options();
  return target;
}

// The inputs are the first targets, followed by the parameters.
StepGraph graph_of(const Scatter& scatter, const Replicas& replicas) {
  StepGraph graph;
  for (const std::size_t r : scatter.active()) graph.parts.push_back({r, scatter.sizes()[r]});
  for (const std::size_t place : scatter.differentiable()) {
    const torch::Tensor& whole = scatter.whole(place);
    StepGraph::Target target = target_of(whole);
    target.is_scattered = whole.dim() > 0;
    if (target.is_scattered) target.row_sizes = whole.sizes().slice(1).vec();
    for (StepGraph::Part& part : graph.parts) {
      const torch::Tensor& leaf = scatter.part(part.replica)[place];
      part.leaves.push_back({torch::autograd::impl::gradient_edge(leaf), graph.targets.size()});
    }
    graph.targets.push_back(std::move(target));
  }
  std::vector<std::size_t> target_of_parameter;
  for (const torch::Tensor& parameter : replicas.parameters()) {
    target_of_parameter.push_back(parameter.requires_grad() ? graph.targets.size() : kNoTarget);
    if (parameter.requires_grad()) graph.targets.push_back(target_of(parameter));
  }
  for (StepGraph::Part& part : graph.parts) {
    for (const Replicas::Leaf& leaf : replicas.leaves(part.replica)) {
      const std::size_t target = target_of_parameter[leaf.parameter];
      if (target == kNoTarget) continue;
      auto edge = torch::autograd::impl::gradient_edge(leaf.tensor);
      // The edge is invalid if the replica's forward() has frozen the parameter.
      if (edge.is_valid()) part.leaves.push_back({std::move(edge), target});
    }
  }
  return graph;
}

}  // namespace

Step::Step(const Replicas& replicas, std::shared_ptr<ThreadTeam> team,
           const std::vector<double>& weights, const std::vector<torch::Tensor>& batch)
    : replicas_(replicas), team_(std::move(team)), scatter_(batch, replicas.devices(), weights) {}

void Step::run(const std::function<void(std::size_t)>& task) const {
  const parallel::CallerState caller(replicas_.devices());
  if (replicas_.devices().front().is_cpu()) release_helping_threads();
  team_->run([&](std::size_t replica) {
    if (scatter_.sizes()[replica] == 0) return;
    const parallel::CallerState::Scope scope(caller, replica);
    task(replica);
  });
}

std::vector<torch::Tensor> Step::gather(const std::vector<Flattened>& outputs) const {
  for (const Flattened& output : outputs) require_same_structure(outputs.front(), output);
  std::vector<GatheredTensor> gathered;
  for (std::size_t k = 0; k < outputs.front().tensors.size(); ++k) {
    std::vector<torch::Tensor> parts;
    for (const Flattened& output : outputs) parts.push_back(output.tensors[k]);
    gathered.push_back(GatheredTensor::joined(parts, replicas_.devices().front(), k));
  }
  attach(gathered);
  std::vector<torch::Tensor> tensors;
  for (const GatheredTensor& tensor : gathered) tensors.push_back(tensor.tensor());
  return tensors;
}

torch::Tensor Step::mean(const std::vector<torch::Tensor>& losses) const {
  std::vector<double> shares;
  for (const std::size_t r : active()) {
    shares.push_back(static_cast<double>(scatter_.sizes()[r]) /
                     static_cast<double>(scatter_.samples()));
  }
  std::vector<GatheredTensor> gathered;
  gathered.push_back(
      GatheredTensor::weighted_mean(losses, std::move(shares), replicas_.devices().front()));
  attach(gathered);
  return gathered.front().tensor();
}

void Step::attach(std::vector<GatheredTensor>& outputs) const {
  if (!at::GradMode::is_enabled()) return;
  StepGraph graph = graph_of(scatter_, replicas_);
  refuse_lost_gradients(outputs, graph, replicas_);
  attach_backward(outputs, std::move(graph), team_, replicas_.devices());
}

}  // namespace lockstep::detail::data_parallel
