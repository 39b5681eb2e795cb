#include <lockstep/parallel/pipeline/tied_parameters.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep::pipeline {

TiedParameters::TiedParameters(const std::vector<Tensors>& parameters)
    : of_(parameters.size()), places_(parameters.size()) {
  std::map<const c10::TensorImpl*, std::set<std::size_t>> stages;
  for (std::size_t stage = 0; stage < parameters.size(); ++stage) {
    for (const torch::Tensor& parameter : parameters[stage]) {
      stages[parameter.unsafeGetTensorImpl()].insert(stage);
    }
  }
  std::set<const c10::TensorImpl*> seen;
  for (const Tensors& each : parameters) {
    for (const torch::Tensor& parameter : each) {
      const auto found = stages.find(parameter.unsafeGetTensorImpl());
      if (found == stages.end() || found->second.size() < 2) continue;
      if (!seen.insert(found->first).second) continue;
      for (const std::size_t stage : found->second) {
        of_[stage].push_back(parameter);
        places_[stage].push_back(tied_.size());
      }
      tied_.push_back({.parameter = parameter, .stages = found->second.size()});
    }
  }
}

bool TiedParameters::any_requires_grad() const {
  return std::any_of(tied_.begin(), tied_.end(),
                     [](const Tied& tied) { return tied.parameter.requires_grad(); });
}

void TiedParameters::begin(int micro_batches) {
  for (Tied& tied : tied_) {
    tied.arrived.assign(static_cast<std::size_t>(micro_batches), {});
    tied.next = 0;
  }
}

void TiedParameters::add(int stage, int micro_batch, std::vector<Tensors> gradients) {
  const auto& places = places_[static_cast<std::size_t>(stage)];
  LOCKSTEP_CHECK(gradients.size() == places.size(), "stage ", stage, " has ", places.size(),
                 " tied parameters and gave gradients of ", gradients.size());
  const std::scoped_lock lock(mutex_);
  for (std::size_t k = 0; k < places.size(); ++k) {
    Tied& tied = tied_[places[k]];
    tied.arrived[static_cast<std::size_t>(micro_batch)][stage] = std::move(gradients[k]);
    while (tied.next < tied.arrived.size() && tied.arrived[tied.next].size() == tied.stages) {
      accumulate(tied.parameter, std::exchange(tied.arrived[tied.next++], {}));
    }
  }
}

// The engine adds the gradients that its roots pass to one node in the order of the roots.
void TiedParameters::accumulate(const torch::Tensor& parameter,
                                const std::map<int, Tensors>& gradients) {
  Tensors contributions;
  for (auto stage = gradients.rbegin(); stage != gradients.rend(); ++stage) {
    for (const torch::Tensor& gradient : stage->second) contributions.push_back(gradient);
  }
  if (contributions.empty()) return;
  const torch::autograd::Edge edge(torch::autograd::impl::grad_accumulator(parameter), 0);
  const torch::autograd::edge_list roots(contributions.size(), edge);
  torch::autograd::Engine::get_default_engine().execute(
      roots, contributions, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace lockstep::pipeline
