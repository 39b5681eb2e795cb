// Steps a module's parameters.
//
//   lockstep::Optimizer optimizer(*net, lockstep::AdamWOptions{.lr = 1e-3});
//   for (...) {
//     optimizer.zero_grad();
//     criterion(net->forward(x), y).backward();
//     optimizer.step();
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/optim/flat_runs.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// torch.optim's SGD, Adam or AdamW, to rounding: one call of LibTorch's fused kernel a step, over
/// flat tensors where parameters lie beside each other as their gradients do (FlatRuns).
///
/// Holds the trainable parameters, each once, not the module. A parameter without a gradient is
/// skipped and its count of steps stays. Sparse gradients are for SGD without momentum and weight
/// decay. Make it when the module is on its device. Parameters in memory that ranks share
/// (DistributedDataParallel's kShared) are for ZeroRedundancyOptimizer: here every rank would step
/// them, which nothing notices. Not thread-safe.
class Optimizer {
 public:
  /// ConfigError for options that cannot be and for a parameter with holes in its memory.
  Optimizer(const torch::nn::Module& module, const OptimizerOptions& options);
  Optimizer(const NamedTensors& parameters, const OptimizerOptions& options);

  /// ConfigError, and nothing changed, for a sparse gradient that the options do not allow.
  void step();
  /// Makes the gradients zero in place: they may be views into a reducer's buckets.
  void zero_grad();

  double lr() const { return rule_->lr(); }
  void set_lr(double lr) { rule_->set_lr(lr); }

  const std::string& name() const { return rule_->name(); }  ///< "sgd", "adam", "adamw"
  const Tensors& parameters() const { return parameters_; }
  /// Those that are there.
  Tensors gradients() const;

  /// What is remembered, to save and to load: "exp_avg.conv1.weight" and so on, and where the rule
  /// counts steps "step.conv1.weight", an int64 on the CPU. Shares memory until the next step().
  NamedTensors state() const;

 private:
  using Indices = std::vector<std::size_t>;

  void step_each();
  void step_runs();
  bool same_steps();
  void look_for_runs();
  void lay_out_states();
  std::int64_t* steps() { return steps_.data_ptr<std::int64_t>(); }

  std::unique_ptr<UpdateRule> rule_;
  bool allows_sparse_;
  bool allows_runs_;
  std::vector<std::string> names_;
  Tensors parameters_;
  std::vector<Tensors> states_;  // by state, then by parameter
  torch::Tensor steps_;          // of each parameter

  // Where parameters and gradients were in the last step: what stays there is worth looking at.
  Addresses addresses_;
  bool looked_ = false;
  std::optional<FlatRuns> runs_;
  std::vector<Tensors> run_states_;  // by state, then by run; `states_` are views of them
};

}  // namespace lockstep
