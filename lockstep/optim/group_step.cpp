#include <lockstep/optim/group_step.h>

#include <map>
#include <utility>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/optim/tensor_kind.h>

namespace lockstep::detail {
namespace {

bool is_sparse(const torch::Tensor& gradient) {
  return gradient.defined() && gradient.layout() != torch::kStrided;
}

// The kernels process memory in order, so the layouts must agree.
torch::Tensor laid_out_like(const torch::Tensor& parameter, const torch::Tensor& tensor) {
  if (tensor.strides() == parameter.strides()) return tensor;
  return torch::empty_like(parameter, tensor.options()).copy_(tensor);
}

// Throws ConfigError unless the memory of `parameter` holds its values, in some order and without
// gaps.
void require_plain(const std::string& name, const torch::Tensor& parameter) {
  if (parameter.is_conj() || parameter.is_neg()) {
    throw ConfigError(
        lockstep::str("optimizer: parameter ", name,
                      " is a lazy conjugate or negative view; register a clone() of it"));
  }
  if (!parameter.is_non_overlapping_and_dense()) {
    throw ConfigError(lockstep::str("optimizer: parameter ", name, " has strides ",
                                    parameter.strides(), " for shape ", parameter.sizes(),
                                    ", which leave holes or overlap; make it contiguous"));
  }
}

}  // namespace

GroupStep::GroupStep(const ParameterGroup& group, UpdateRule& rule)
    : rule_(&rule), allows_sparse_(rule.takes_sparse_gradients()), allows_runs_(keeps_zeros(rule)) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : group.parameters) {
    require_plain(name, parameter);
    names_.push_back(name);
    parameters_.push_back(parameter);
    trained_.push_back(parameter.requires_grad());
  }
  states_.resize(rule_->state_names().size());
  for (auto& state : states_) {
    for (const auto& parameter : parameters_) {
      state.push_back(torch::zeros_like(parameter.detach()));
    }
  }
  steps_ = torch::zeros({static_cast<std::int64_t>(names_.size())}, torch::kInt64);
}

void GroupStep::require_steppable(const torch::Tensor& found_inf) const {
  if (found_inf.defined() && lr_.defined() &&
      (found_inf.scalar_type() != torch::kFloat32 || found_inf.numel() != 1 ||
       found_inf.device() != lr_.device())) {
    throw ConfigError(lockstep::str(rule_->name(), ": found_inf is ", optim::kind_text(found_inf),
                                    ", expected one Float on ", lr_.device(),
                                    ", where the parameters are; make the GradScaler for that "
                                    "device"));
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    if (!allows_sparse_ && is_sparse(gradient)) {
      throw ConfigError(
          lockstep::str(rule_->name(), ": the gradient of ", names_[i],
                        " is sparse; only sgd without momentum and weight decay supports sparse "
                        "gradients. Use it, or set sparse = false in the layer"));
    }
    require_alike(i);
  }
}

// A kernel takes the type and the number of elements of all tensors from the parameter, so that it
// would read beyond a smaller gradient or state.
void GroupStep::require_alike(std::size_t i) const {
  const torch::Tensor& parameter = parameters_[i];
  require_plain(names_[i], parameter);
  if (!states_.empty() && !optim::alike(states_.front()[i], parameter)) {
    throw ConfigError(lockstep::str(
        rule_->name(), ": parameter ", names_[i], " was ", optim::kind_text(states_.front()[i]),
        " when the optimizer was constructed and is now ", optim::kind_text(parameter),
        "; construct it after changing the module"));
  }
  if (lr_.defined() && parameter.device() != lr_.device()) {
    throw ConfigError(lockstep::str(rule_->name(), ": parameter ", names_[i], " is on ",
                                    parameter.device(), ", the optimizer's learning rate on ",
                                    lr_.device(),
                                    "; call set_capturable(true) again after moving the module"));
  }
  if (!optim::alike(parameter.grad(), parameter)) {
    throw ConfigError(lockstep::str(rule_->name(), ": parameter ", names_[i], " is ",
                                    optim::kind_text(parameter), " and its gradient is ",
                                    optim::kind_text(parameter.grad()),
                                    "; call zero_grad() and run backward() again"));
  }
}

void GroupStep::step(const torch::Tensor& found_inf) {
  const torch::NoGradGuard no_grad;
  if (lr_.defined()) return step_on_device(found_inf);
  if (runs_ && runs_->fit(parameters_) && same_steps()) return step_runs();
  // The state stays in place: `states_` are views of the runs' state.
  runs_.reset();
  step_each();
  if (allows_runs_) look_for_runs();
}

// The dense gradients of `members`, which all have one, with their parameters and state.
GroupStep::Pieces GroupStep::pieces_of(const Indices& members) {
  Pieces pieces;
  pieces.states.resize(states_.size());
  for (const std::size_t i : members) {
    pieces.parameters.push_back(parameters_[i]);
    torch::Tensor gradient = parameters_[i].grad();
    const bool is_lazy = gradient.is_conj() || gradient.is_neg();
    if (is_lazy) gradient = gradient.resolve_conj().resolve_neg();
    pieces.gradients.push_back(laid_out_like(parameters_[i], gradient));
    for (std::size_t s = 0; s < states_.size(); ++s) {
      // The parameter's memory format may have changed since.
      states_[s][i] = laid_out_like(parameters_[i], states_[s][i]);
      pieces.states[s].push_back(states_[s][i]);
    }
  }
  return pieces;
}

void GroupStep::step_each() {
  std::map<std::int64_t, Indices> by_steps;
  Indices sparse;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    if (is_sparse(gradient)) {
      sparse.push_back(i);
    } else {
      by_steps[rule_->counts_steps() ? steps()[i] : 0].push_back(i);
    }
  }
  for (const auto& [made, members] : by_steps) {
    const Pieces pieces = pieces_of(members);
    rule_->update(pieces.parameters, pieces.gradients, pieces.states, made + 1);
  }
  for (const std::size_t i : sparse) parameters_[i].add_(parameters_[i].grad(), -rule_->lr());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].grad().defined()) ++steps()[i];
  }
  touch_members();
}

void GroupStep::step_runs() {
  const std::int64_t step = steps()[runs_->members().front().front()] + 1;
  rule_->update(runs_->parameters(), runs_->gradients(), run_states_, step);
  for (const Indices& members : runs_->members()) {
    for (const std::size_t i : members) steps()[i] = step;
  }
  touch_members();
}

// Autograd must know that saved values of the parameters are invalid. LibTorch's fused kernels do
// not tell it.
void GroupStep::touch_members() {
  for (const torch::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) parameter.unsafeGetTensorImpl()->bump_version();
  }
}

// One call of the rule takes a single step number, so all members of the runs must have made
// equally many steps.
bool GroupStep::same_steps() const {
  if (!rule_->counts_steps()) return true;
  if (counts_) return counts_->counts().size() == 1;
  const std::int64_t first = steps()[runs_->members().front().front()];
  for (const Indices& members : runs_->members()) {
    for (const std::size_t i : members) {
      if (steps()[i] != first) return false;
    }
  }
  return true;
}

// --- Steps whose numbers lie on the device

void GroupStep::set_capturable(bool on) {
  if (counts_) counts_->fetch(steps());
  counts_.reset();
  lr_.reset();
  captured_ = false;
  if (!on || parameters_.empty()) return;
  const torch::Device device = parameters_.front().device();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].device() == device) continue;
    throw ConfigError(lockstep::str(
        rule_->name(), ": a capturable optimizer has its learning rate on one device, but ",
        names_[0], " is on ", device, " and ", names_[i], " on ", parameters_[i].device(),
        "; make an optimizer for each device"));
  }
  lr_ = torch::empty({}, torch::TensorOptions().dtype(lr_type(device)).device(device));
  write_lr();
}

void GroupStep::write_lr() {
  if (lr_.defined()) lr_.fill_(rule_->lr());
}

void GroupStep::step_on_device(const torch::Tensor& found_inf) {
  follow_gradients();
  counts_->advance(found_inf);
  const auto update = [&](const Tensors& parameters, const Tensors& gradients,
                          const std::vector<Tensors>& states, const DeviceCounts::Count& count) {
    rule_->update(parameters, gradients, states,
                  DeviceStep{.lr = lr_, .number = count.number, .found_inf = found_inf});
  };
  if (runs_ && runs_->fit(parameters_) && same_steps()) {
    update(runs_->parameters(), runs_->gradients(), run_states_, counts_->counts().front());
    return touch_members();
  }
  runs_.reset();
  for (const DeviceCounts::Count& count : counts_->counts()) {
    const Pieces pieces = pieces_of(count.members);
    update(pieces.parameters, pieces.gradients, pieces.states, count);
  }
  touch_members();
  if (allows_runs_) look_for_runs();
}

// Regroups the counts if other parameters have gradients than before.
void GroupStep::follow_gradients() {
  std::vector<bool> takes_part;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& gradient = parameters_[i].grad();
    if (is_sparse(gradient)) {
      throw ConfigError(lockstep::str(rule_->name(), ": the gradient of ", names_[i],
                                      " is sparse, which a capturable optimizer does not support; "
                                      "set sparse = false in the layer"));
    }
    takes_part.push_back(gradient.defined());
  }
  if (counts_ && counts_->fit(takes_part)) {
    captured_ = captured_ || is_capturing();
    return;
  }
  if (captured_ || is_capturing()) {
    throw ConfigError(lockstep::str(rule_->name(),
                                    ": other parameters have gradients than in the step ",
                                    captured_ ? "that was captured" : "before the captured one",
                                    "; a captured optimizer steps the same parameters each time"));
  }
  if (counts_) counts_->fetch(steps());
  counts_.emplace(takes_part, steps(), rule_->counts_steps(), parameters_.front().device());
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

// Autograd would go on adding to a gradient of the parameter's former type. A parameter that was
// frozen gets no more gradients; with zeros it would still be moved by momentum and weight decay.
void GroupStep::drop_unusable_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const torch::Tensor& parameter = parameters_[i];
    const torch::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    const bool was_frozen = trained_[i] && !parameter.requires_grad();
    if (was_frozen || !optim::alike(gradient, parameter)) parameter.mutable_grad().reset();
  }
}

void GroupStep::zero_grad() {
  const torch::NoGradGuard no_grad;
  drop_unusable_gradients();
  if (runs_ && runs_->fit(parameters_)) return at::_foreach_zero_(runs_->gradients());
  Tensors dense;
  for (const auto& parameter : parameters_) {
    torch::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (is_sparse(gradient)) {
      gradient.zero_();
    } else {
      dense.push_back(optim::without_lazy_marks(gradient));
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
  if (counts_) counts_->fetch(steps());
  for (std::size_t i = 0; i < names_.size(); ++i) {
    state.emplace_back("step." + names_[i], steps_.select(0, static_cast<std::int64_t>(i)));
  }
  return state;
}

}  // namespace lockstep::detail
