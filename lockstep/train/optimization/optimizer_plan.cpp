#include <lockstep/train/optimization/optimizer_plan.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include <lockstep/core/error.h>
#include <lockstep/optim/optimizer.h>

namespace lockstep::train {
namespace {

constexpr const char* kOptimizer = "optimizer";  // among to_settings()
constexpr const char* kOwnOptimizer = "own";

constexpr const char* kOrigin = "Trainer: configure_optimizers(): ";

// "adamw (amsgrad no, beta1 0.9, ...) of 12 parameters"
std::string group_text(const ParameterGroup& group) {
  std::vector<std::string> options;
  std::string name;
  for (const auto& [option, value] : to_settings(group.options)) {
    if (option == kOptimizer) {
      name = value;
    } else {
      options.push_back(lockstep::str(option, ' ', value));
    }
  }
  return lockstep::str(name, " (", join(options), ") of ",
                       amount_of(static_cast<std::int64_t>(group.parameters.size()), "parameter"));
}

bool has_name(const torch::nn::Module& module, const torch::Tensor& tensor) {
  for (const auto& item : module.named_parameters()) {
    if (item.value().is_same(tensor)) return true;
  }
  return false;
}

void require_valid(const ConfiguredOptimizer& configured) {
  if (configured.groups.empty()) {
    throw ConfigError(lockstep::str(kOrigin, "an optimizer has no parameter group"));
  }
  if (configured.frequency < 1) {
    throw ConfigError(
        lockstep::str(kOrigin, "frequency must be at least 1, got ", configured.frequency));
  }
  const std::size_t schedules = configured.schedules.size();
  const std::size_t rates = configured.make ? 1 : configured.groups.size();
  if (schedules == 0 || schedules == rates) return;
  throw ConfigError(lockstep::str(
      kOrigin, "an optimizer has ", amount_of(static_cast<std::int64_t>(rates), "learning rate"),
      " and ", amount_of(static_cast<std::int64_t>(schedules), "schedule"),
      "; give one for each group, or none"));
}

void require_momentum(const ConfiguredOptimizer& configured) {
  for (const ParameterGroup& group : configured.groups) {
    if (has_momentum(group.options)) continue;
    throw ConfigError(
        lockstep::str("Trainer: cycle_momentum needs an optimizer with momentum, but ",
                      to_settings(group.options).at("optimizer"),
                      " has a momentum of 0; set one, or use adam or adamw"));
  }
}

void require_schedulable(const ConfiguredOptimizer& configured, const ScheduleOptions& schedule) {
  const bool is_plateau = schedule.kind == ScheduleKind::kPlateau;
  if (!configured.make) {
    if (schedule.cycle_momentum) require_momentum(configured);
    return;
  }
  if (!is_plateau && !schedule.cycle_momentum) return;
  throw ConfigError(lockstep::str(
      kOrigin, "an optimizer of the program's own takes only factors of its learning rate, not ",
      is_plateau ? "schedule plateau" : "cycle_momentum"));
}

}  // namespace

OptimizerPlan::OptimizerPlan(detail::TaskBase& task, const OptimizerOptions& given,
                             const ScheduleOptions& schedule) {
  const std::vector<ConfiguredOptimizer> configured = task.configure_optimizers();
  is_configured_ = !configured.empty();
  if (!is_configured_) {
    if (schedule.cycle_momentum) require_momentum({.groups = {{.options = given}}});
    optimizers_.push_back({.groups = given, .schedules = {LearningRateFactor()}});
    return;
  }
  Free free;
  for (const auto& [name, tensor] : trainable_parameters(task.module())) {
    free.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  for (const ConfiguredOptimizer& each : configured) {
    require_valid(each);
    require_schedulable(each, schedule);
    add(each, task.module(), free);
  }
  if (!free.empty()) {
    throw ConfigError(lockstep::str(kOrigin, "parameter '", free.begin()->second,
                                    "' requires a gradient, but no optimizer has it; add it to a "
                                    "group, or freeze it before fit()"));
  }
  if (optimizers_.size() == 1) return;
  for (const Planned& each : optimizers_) {
    Tensors& own = parameters_.emplace_back();
    for (const auto& [name, tensor] : each.parameters) own.push_back(tensor);
  }
}

// Gives the parameters their names in the module, under which their state is saved.
void OptimizerPlan::add(const ConfiguredOptimizer& configured, const torch::nn::Module& module,
                        Free& free) {
  std::vector<ParameterGroup> groups;
  NamedTensors parameters;
  for (const ParameterGroup& given : configured.groups) {
    ParameterGroup& group = groups.emplace_back(ParameterGroup{.options = given.options});
    for (const auto& [name, tensor] : given.parameters) {
      const auto found = free.find(tensor.unsafeGetTensorImpl());
      if (found != free.end()) {
        group.parameters.emplace_back(found->second, tensor);
        free.erase(found);
        continue;
      }
      const bool is_there = has_name(module, tensor);
      if (is_there && !tensor.requires_grad()) continue;  // frozen
      throw ConfigError(lockstep::str(kOrigin, "parameter '", name, "' ",
                                      is_there ? "is in two groups; a parameter belongs to one"
                                               : "is not one of the task's module"));
    }
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  }
  if (parameters.empty()) {
    throw ConfigError(lockstep::str(kOrigin, "optimizer ", optimizers_.size(),
                                    " has no parameter that requires a gradient"));
  }
  std::vector<LearningRateFactor> schedules = configured.schedules;
  if (schedules.empty()) schedules.resize(groups.size());
  optimizers_.push_back({.groups = OptimizerGroups(groups),
                         .parameters = std::move(parameters),
                         .schedules = std::move(schedules),
                         .frequency = configured.frequency,
                         .make = configured.make});
  for (const ParameterGroup& group : groups) {
    texts_.push_back(configured.make ? lockstep::str("own of ", group.parameters.size())
                                     : group_text(group));
  }
}

std::size_t OptimizerPlan::index_at(std::int64_t step) const {
  if (optimizers_.size() == 1) return 0;
  std::int64_t round = 0;
  for (const Planned& each : optimizers_) round += each.frequency;
  std::int64_t place = step % round;
  std::size_t index = 0;
  while (place >= optimizers_[index].frequency) place -= optimizers_[index++].frequency;
  return index;
}

double OptimizerPlan::base_lr() const {
  return is_own(0) ? 0 : optimizers_.front().groups.lrs().front();
}

void OptimizerPlan::set_rates(RunOptimizer& optimizer, std::size_t index, double rate,
                              double factor, const ScheduleProgress& at) const {
  if (!is_configured_) return optimizer.set_lr(rate * factor);
  const double base = base_lr();
  const double run_factor = base == 0 ? factor : rate / base * factor;
  std::vector<double> factors;
  for (const LearningRateFactor& schedule : optimizers_[index].schedules) {
    factors.push_back(schedule ? schedule(at) : run_factor);
  }
  optimizer.scale_lrs(factors);
}

std::map<std::string, std::string> OptimizerPlan::settings() const {
  std::map<std::string, std::string> settings;
  if (is_own(0)) {
    settings[kOptimizer] = kOwnOptimizer;
  } else {
    settings = to_settings(optimizers_.front().groups.options().front());
  }
  if (size() > 1) {
    settings[kOptimizers] = std::to_string(size());
    std::vector<std::string> turns;
    for (const Planned& each : optimizers_) turns.push_back(std::to_string(each.frequency));
    settings["optimizer_frequencies"] = join(turns);
  }
  if (texts_.size() > 1) settings["parameter_groups"] = join(texts_);
  return settings;
}

OptimizerOptions OptimizerPlan::typical_options() const {
  if (is_own(0)) return AdamOptions();
  return optimizers_.front().groups.options().front();
}

std::string OptimizerPlan::prefix(std::size_t optimizer) const {
  const std::string own = is_own(optimizer) ? kOwnState : "";
  return size() == 1 ? own : lockstep::str("optimizer_", optimizer, '.', own);
}

NamedTensors OptimizerPlan::fresh_state(const torch::nn::Module& module) const {
  NamedTensors all;
  for (std::size_t i = 0; i < size(); ++i) {
    if (is_own(i)) continue;
    const Optimizer optimizer(groups(i).part_of(trainable_parameters(module)).groups);
    for (const auto& [name, tensor] : optimizer.state()) all.emplace_back(prefix(i) + name, tensor);
  }
  return all;
}

void OptimizerPlan::require_same_optimizers(const std::map<std::string, std::string>& saved,
                                            const std::string& origin) const {
  const auto setting = [&saved](const char* name, const char* absent) {
    const auto found = saved.find(name);
    return found == saved.end() ? std::string(absent) : found->second;
  };
  const std::string count = setting(kOptimizers, "1");
  const std::string advice =
      "; configure the same optimizers, or give another CheckpointOptions::directory";
  if (count != std::to_string(size())) {
    throw CheckpointError(lockstep::str(origin, " has the state of ", count,
                                        count == "1" ? " optimizer" : " optimizers",
                                        ", but this run has ", size(), advice));
  }
  const std::string first = setting(kOptimizer, "unknown");
  if ((first == kOwnOptimizer) == is_own(0)) return;
  throw CheckpointError(lockstep::str(origin, " has the state of optimizer ", first,
                                      ", but this run's is ", settings().at(kOptimizer), advice));
}

bool OptimizerPlan::is_own_state(const std::string& name) const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (is_own(i) && name.starts_with(prefix(i))) return true;
  }
  return false;
}

void RunOptimizers::agree_through(GradScaler& scaler) {
  for (const auto& each : optimizers_) each->agree_through(scaler);
}

double RunOptimizers::communication_seconds() const {
  double seconds = 0;
  for (const auto& each : optimizers_) seconds += each->communication_seconds();
  return seconds;
}

NamedTensors RunOptimizers::state() {
  NamedTensors all;
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    for (const auto& [name, tensor] : optimizers_[i]->state()) {
      all.emplace_back(plan_.prefix(i) + name, tensor);
    }
  }
  return all;
}

void RunOptimizers::load_state(const NamedTensors& state) {
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    const std::string prefix = plan_.prefix(i);
    NamedTensors own;
    for (const auto& [name, tensor] : state) {
      if (name.starts_with(prefix)) own.emplace_back(name.substr(prefix.size()), tensor);
    }
    optimizers_[i]->load_state(own);
  }
}

}  // namespace lockstep::train
