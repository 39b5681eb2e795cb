#include <lockstep/optim/optimizer.h>

#include <iterator>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/optim/group_rules.h>
#include <lockstep/optim/group_step.h>

namespace lockstep {
namespace {

// The ranks of a ZeroRedundancyOptimizer need no such check, because DistributedDataParallel has
// moved their parameters apart.
void require_separate_memory(const std::vector<ParameterGroup>& groups) {
  NamedTensors all;
  for (const ParameterGroup& group : groups) {
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  }
  if (const auto pair = optim::first_overlap(all)) {
    throw ConfigError(
        lockstep::str("optimizer: parameters '", pair->first, "' and '", pair->second,
                      "' share memory, so that their updates could overwrite each other; use one "
                      "parameter in both places, for example torch::linear(x, embedding->weight)"));
  }
}

}  // namespace

struct Optimizer::Groups {
  explicit Groups(const std::vector<ParameterGroup>& groups) : rules(groups) {}

  detail::GroupRules rules;
  std::vector<detail::GroupStep> steps;
};

Optimizer::Optimizer(const torch::nn::Module& module, const OptimizerOptions& options)
    : Optimizer(trainable_parameters(module), options) {}

Optimizer::Optimizer(const NamedTensors& parameters, const OptimizerOptions& options)
    : Optimizer(std::vector<ParameterGroup>{{.parameters = parameters, .options = options}}) {}

Optimizer::Optimizer(std::vector<ParameterGroup> groups)
    : Optimizer(Checked{detail::checked_groups(std::move(groups))}) {}

Optimizer::Optimizer(const Checked& given) : groups_(std::make_unique<Groups>(given.groups)) {
  require_separate_memory(given.groups);
  for (std::size_t g = 0; g < given.groups.size(); ++g) {
    const Tensors& own =
        groups_->steps.emplace_back(given.groups[g], groups_->rules[g]).parameters();
    parameters_.insert(parameters_.end(), own.begin(), own.end());
  }
}

Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::step() { step_groups({}); }

void Optimizer::step_unless(const torch::Tensor& found_inf) {
  if (!capturable_) {
    throw ConfigError(
        "optimizer: a step that the device may skip needs its counts there; call "
        "set_capturable(true) before");
  }
  step_groups(found_inf);
}

void Optimizer::step_groups(const torch::Tensor& found_inf) {
  for (const detail::GroupStep& group : groups_->steps) group.require_steppable(found_inf);
  for (detail::GroupStep& group : groups_->steps) group.step(found_inf);
}

void Optimizer::set_capturable(bool on) {
  for (detail::GroupStep& group : groups_->steps) group.set_capturable(on);
  capturable_ = on;
}

void Optimizer::write_lrs() {
  for (detail::GroupStep& group : groups_->steps) group.write_lr();
}

std::size_t Optimizer::groups() const { return groups_->rules.size(); }

const std::string& Optimizer::name() const { return groups_->rules[0].name(); }

double Optimizer::lr(std::size_t group) const { return groups_->rules.lr(group); }

double Optimizer::momentum(std::size_t group) const { return groups_->rules.momentum(group); }

void Optimizer::set_momentum(double momentum) { groups_->rules.set_momentum_of_all(momentum); }

void Optimizer::set_lr(std::size_t group, double lr) {
  groups_->rules.set_lr(group, lr);
  groups_->steps[group].write_lr();
}

void Optimizer::set_lr(double lr) {
  groups_->rules.set_lr_of_all(lr);
  write_lrs();
}

void Optimizer::scale_lr(double factor) {
  groups_->rules.scale_lr(factor);
  write_lrs();
}

void Optimizer::zero_grad() {
  for (detail::GroupStep& group : groups_->steps) group.zero_grad();
}

Tensors Optimizer::gradients() const {
  Tensors gradients;
  for (const auto& parameter : parameters_) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

NamedTensors Optimizer::state() const {
  NamedTensors all;
  for (const detail::GroupStep& group : groups_->steps) {
    NamedTensors own = group.state();
    std::move(own.begin(), own.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace lockstep
