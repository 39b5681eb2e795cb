// The optimizers of a run, checked: those of a task's configure_optimizers(), or the one of
// TrainerOptions::optimizer. Internal to lockstep/train.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/train/optimization/optimizer_groups.h>
#include <lockstep/train/optimization/run_optimizer.h>
#include <lockstep/train/optimization/schedule.h>
#include <lockstep/train/task/task.h>

namespace lockstep::train {

/// Prefix of the names of an own optimizer's tensors in a training state.
inline constexpr const char* kOwnState = "own.";
/// Name of the number of optimizers in a checkpoint's settings. Absent for one optimizer, as in
/// older checkpoints.
inline constexpr const char* kOptimizers = "optimizers";

/// The state of several optimizers is named apart: that of the second one begins with
/// "optimizer_1.". The state of a single one has no such prefix.
class OptimizerPlan {
 public:
  /// Calls the task's configure_optimizers(). Throws ConfigError if it is not valid for `schedule`,
  /// or does not have each trainable parameter of the task's module exactly once.
  OptimizerPlan(detail::TaskBase& task, const OptimizerOptions& given,
                const ScheduleOptions& schedule);

  std::size_t size() const { return optimizers_.size(); }
  /// The optimizer that takes step `step`, counted from 0 over all epochs.
  std::size_t index_at(std::int64_t step) const;
  /// The parameters of each of several optimizers; empty for one.
  const std::vector<Tensors>& parameters() const { return parameters_; }

  bool is_own(std::size_t optimizer) const { return bool(optimizers_[optimizer].make); }
  const OptimizerGroups& groups(std::size_t optimizer) const {
    return optimizers_[optimizer].groups;
  }
  const NamedTensors& parameters_of(std::size_t optimizer) const {
    return optimizers_[optimizer].parameters;
  }
  const MakeOwnOptimizer& make(std::size_t optimizer) const { return optimizers_[optimizer].make; }

  /// The learning rate of the first optimizer's first group; 0 for an own optimizer.
  double base_lr() const;
  /// Sets the learning rates of `optimizer`, which is number `index`, to those of a step. `rate` is
  /// the run's base rate, which schedule plateau changes, and `factor` that of the run's schedule.
  void set_rates(RunOptimizer& optimizer, std::size_t index, double rate, double factor,
                 const ScheduleProgress& at) const;

  /// For checkpoints, and for comparison with those of a resumed run.
  std::map<std::string, std::string> settings() const;
  /// Options of an optimizer that remembers about as much as those of this run.
  OptimizerOptions typical_options() const;

  /// The state of fresh optimizers of `module`, except own ones, whose tensors are not known before
  /// their first step.
  NamedTensors fresh_state(const torch::nn::Module& module) const;
  /// Whether a tensor of this name in a training state belongs to an own optimizer of the run.
  bool is_own_state(const std::string& name) const;
  /// Throws CheckpointError if the run of a checkpoint with these settings, `origin`, had another
  /// number of optimizers, or one of the other kind.
  void require_same_optimizers(const std::map<std::string, std::string>& saved,
                               const std::string& origin) const;
  /// The names' prefix of an optimizer's state.
  std::string prefix(std::size_t optimizer) const;

 private:
  struct Planned {
    OptimizerGroups groups;
    NamedTensors parameters;                    // by their names in the module
    std::vector<LearningRateFactor> schedules;  // one for each group
    std::int64_t frequency = 1;
    MakeOwnOptimizer make;
  };
  // Trainable parameters that no optimizer has yet, with their names in the module.
  using Free = std::map<const torch::TensorImpl*, std::string>;
  void add(const ConfiguredOptimizer& configured, const torch::nn::Module& module, Free& free);

  bool is_configured_ = false;
  std::vector<std::string> texts_;  // a description of each configured group
  std::vector<Planned> optimizers_;
  std::vector<Tensors> parameters_;
};

/// One optimizer that steps with the one whose turn it is. All share one training state.
class RunOptimizers {
 public:
  RunOptimizers(const OptimizerPlan& plan, std::vector<std::unique_ptr<RunOptimizer>> optimizers)
      : plan_(plan), optimizers_(std::move(optimizers)) {}

  void choose(std::size_t index) { chosen_ = index; }
  RunOptimizer& operator*() const { return *optimizers_[chosen_]; }
  RunOptimizer* operator->() const { return optimizers_[chosen_].get(); }

  /// These concern all optimizers, and behave like those of RunOptimizer.
  void agree_through(GradScaler& scaler);
  double communication_seconds() const;
  NamedTensors state();
  void load_state(const NamedTensors& state);

 private:
  const OptimizerPlan& plan_;
  std::vector<std::unique_ptr<RunOptimizer>> optimizers_;
  std::size_t chosen_ = 0;
};

}  // namespace lockstep::train
