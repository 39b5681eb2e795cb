#include <lockstep/optim/group_step.h>

#include <map>
#include <utility>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

// What one call of the rule steps.
struct Pieces {
  Tensors parameters;
  Tensors gradients;
  std::vector<Tensors> states;
};

bool allows_sparse_gradients(const OptimizerOptions& options) {
  const auto* sgd = std::get_if<SgdOptions>(&options);
  return sgd != nullptr && sgd->momentum == 0 && sgd->weight_decay == 0;
}

// Adam divides by eps where nothing was ever seen, as between the parameters of a run.
bool keeps_zeros(const OptimizerOptions& options) {
  const auto* adam = std::get_if<AdamOptions>(&options);
  const auto* adamw = std::get_if<AdamWOptions>(&options);
  return (adam == nullptr || adam->eps > 0) && (adamw == nullptr || adamw->eps > 0);
}

bool is_sparse(const torch::Tensor& gradient) {
  return gradient.defined() && gradient.layout() != torch::kStrided;
}

// The kernels walk through memory, so the layouts must agree.
torch::Tensor laid_out_like(const torch::Tensor& parameter, const torch::Tensor& tensor) {
  if (tensor.strides() == parameter.strides()) return tensor;
  return torch::empty_like(parameter, tensor.options()).copy_(tensor);
}

}  // namespace

GroupStep::GroupStep(const ParameterGroup& group, UpdateRule& rule)
    : rule_(&rule),
      allows_sparse_(allows_sparse_gradients(group.options)),
      allows_runs_(keeps_zeros(group.options)) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : group.parameters) {
    if (!parameter.is_non_overlapping_and_dense()) {
      throw ConfigError(lockstep::str("optimizer: parameter ", name, " has strides ",
                                      parameter.strides(), " for shape ", parameter.sizes(),
                                      ", which leave holes or overlap; make it contiguous"));
    }
    names_.push_back(name);
    parameters_.push_back(parameter);
  }
  states_.resize(rule_->state_names().size());
  for (auto& state : states_) {
    for (const auto& parameter : parameters_) {
      state.push_back(torch::zeros_like(parameter.detach()));
    }
  }
  steps_ = torch::zeros({static_cast<std::int64_t>(names_.size())}, torch::kInt64);
}

void GroupStep::require_steppable() const {
  if (allows_sparse_) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_sparse(parameters_[i].grad())) continue;
    throw ConfigError(lockstep::str(
        rule_->name(), ": the gradient of ", names_[i],
        " is sparse, which is only for sgd without momentum and weight decay; make the layer "
        "with sparse = false, or use such an sgd"));
  }
}

void GroupStep::step() {
  const torch::NoGradGuard no_grad;
  if (runs_ && runs_->fit(parameters_) && same_steps()) return step_runs();
  // The state stays where it is: `states_` are views of the runs'.
  runs_.reset();
  step_each();
  if (allows_runs_) look_for_runs();
}

void GroupStep::step_each() {
  std::map<std::int64_t, Pieces> by_steps;
  Indices sparse;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    if (is_sparse(gradient)) {
      sparse.push_back(i);
      continue;
    }
    Pieces& pieces = by_steps[rule_->counts_steps() ? steps()[i] : 0];
    pieces.states.resize(states_.size());
    pieces.parameters.push_back(parameters_[i]);
    pieces.gradients.push_back(laid_out_like(parameters_[i], gradient));
    for (std::size_t s = 0; s < states_.size(); ++s) {
      // The parameter may have got another memory format since.
      states_[s][i] = laid_out_like(parameters_[i], states_[s][i]);
      pieces.states[s].push_back(states_[s][i]);
    }
  }
  for (const auto& [steps, pieces] : by_steps) {
    rule_->update(pieces.parameters, pieces.gradients, pieces.states, steps + 1);
  }
  for (const std::size_t i : sparse) parameters_[i].add_(parameters_[i].grad(), -rule_->lr());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].grad().defined()) ++steps()[i];
  }
}

void GroupStep::step_runs() {
  const std::int64_t step = steps()[runs_->members().front().front()] + 1;
  rule_->update(runs_->parameters(), runs_->gradients(), run_states_, step);
  for (const Indices& members : runs_->members()) {
    for (const std::size_t i : members) {
      steps()[i] = step;
      // Autograd must know that what it saved is no more; the kernel told it of the run alone.
      if (i != members.front()) parameters_[i].unsafeGetTensorImpl()->bump_version();
    }
  }
}

// One call of the rule takes one number of steps, so all members of the runs must have made as
// many.
bool GroupStep::same_steps() {
  if (!rule_->counts_steps()) return true;
  const std::int64_t first = steps()[runs_->members().front().front()];
  for (const Indices& members : runs_->members()) {
    for (const std::size_t i : members) {
      if (steps()[i] != first) return false;
    }
  }
  return true;
}

void GroupStep::look_for_runs() {
  Addresses addresses = addresses_of(parameters_);
  const bool moved = addresses != addresses_;
  addresses_ = std::move(addresses);
  if (moved) looked_ = false;
  if (moved || looked_) return;
  looked_ = true;
  runs_.emplace(parameters_);
  if (runs_->useful() && same_steps()) {
    lay_out_states();
  } else {
    runs_.reset();
  }
}

void GroupStep::lay_out_states() {
  run_states_.assign(states_.size(), {});
  for (std::size_t r = 0; r < runs_->parameters().size(); ++r) {
    const torch::Tensor& run = runs_->parameters()[r];
    for (std::size_t s = 0; s < states_.size(); ++s) {
      const torch::Tensor flat = torch::zeros_like(run);
      for (const std::size_t i : runs_->members()[r]) {
        const torch::Tensor part = FlatRuns::part(flat, run, parameters_[i]);
        part.copy_(states_[s][i]);
        states_[s][i] = part;
      }
      run_states_[s].push_back(flat);
    }
  }
}

void GroupStep::zero_grad() {
  const torch::NoGradGuard no_grad;
  if (runs_ && runs_->fit(parameters_)) return at::_foreach_zero_(runs_->gradients());
  Tensors dense;
  for (const auto& parameter : parameters_) {
    torch::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (is_sparse(gradient)) {
      gradient.zero_();
    } else {
      dense.push_back(std::move(gradient));
    }
  }
  if (!dense.empty()) at::_foreach_zero_(dense);
}

NamedTensors GroupStep::state() const {
  NamedTensors state;
  for (std::size_t s = 0; s < states_.size(); ++s) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      state.emplace_back(rule_->state_names()[s] + "." + names_[i], states_[s][i]);
    }
  }
  if (!rule_->counts_steps()) return state;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    state.emplace_back("step." + names_[i], steps_.select(0, static_cast<std::int64_t>(i)));
  }
  return state;
}

}  // namespace lockstep
