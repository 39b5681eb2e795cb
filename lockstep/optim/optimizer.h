// Steps a module's parameters.
//
//   lockstep::Optimizer optimizer(*net, lockstep::AdamWOptions{.lr = 1e-3});
//   for (...) {
//     optimizer.zero_grad();
//     criterion(net->forward(x), y).backward();
//     optimizer.step();
//   }
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/optim/group_rules.h>
#include <lockstep/optim/group_step.h>
#include <lockstep/optim/parameter_groups.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep {

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
  /// Groups with options of their own, such as other learning rates or no weight decay: see
  /// parameter_groups.h. ConfigError unless all are options of one optimizer, and for a parameter
  /// in two groups. A parameter in none is not stepped.
  explicit Optimizer(std::vector<ParameterGroup> groups);

  /// ConfigError, and nothing changed, for a sparse gradient that the options do not allow.
  void step();

  /// While on, step() has learning rates and counts of steps on the device, as torch.optim has them
  /// with capturable=True: a CUDA graph may record step() and replay it, and set_lr() reaches the
  /// replays. The results are those of other steps, on a CPU to the bit. set_momentum() changes
  /// only what is launched after it. All parameters of a group must be on one device, and gradients
  /// dense; a step that has been recorded (CaptureScope) needs gradients of the same parameters
  /// from then on (ConfigError). state() waits for the device. Load state before this call.
  void set_capturable(bool on);
  bool is_capturable() const { return capturable_; }
  /// As step() if `found_inf` is 0. If it is 1, nothing happens, and steps are not counted. The
  /// device decides, and the host does not wait for it. `found_inf` is a float of one element on
  /// the parameters' device, as GradScaler has it. ConfigError unless capturable.
  void step_unless(const torch::Tensor& found_inf);

  /// Makes the gradients zero in place: they may be views into a reducer's buckets.
  void zero_grad();

  std::size_t groups() const { return rules_.size(); }
  /// ConfigError where there is no such group.
  double lr(std::size_t group = 0) const { return rules_.lr(group); }
  void set_lr(std::size_t group, double lr);
  void set_lr(double lr);
  /// Makes each group's learning rate `factor` times the one in its options: for schedules.
  void scale_lr(double factor);

  /// SGD's momentum, Adam's and AdamW's beta1. ConfigError where there is no such group.
  double momentum(std::size_t group = 0) const { return rules_.momentum(group); }
  /// Sets that of all groups, as a one-cycle schedule does. ConfigError for a value that the
  /// options could not have, and for an SGD made without momentum, which keeps no buffer for it.
  void set_momentum(double momentum) { rules_.set_momentum_of_all(momentum); }

  const std::string& name() const { return rules_[0].name(); }  ///< "sgd", "adam", "adamw"
  const Tensors& parameters() const { return parameters_; }     ///< of all groups
  /// Those that are there.
  Tensors gradients() const;

  /// What is remembered, to save and to load: "exp_avg.conv1.weight" and so on, and where the rule
  /// counts steps "step.conv1.weight", an int64 on the CPU. Shares memory until the next step().
  /// Names are those of parameters, whatever their group: other groups can take the state over.
  NamedTensors state() const;

 private:
  struct Checked {
    std::vector<ParameterGroup> groups;
  };
  explicit Optimizer(const Checked& given);
  void write_lrs();
  void step_groups(const torch::Tensor& found_inf);

  bool capturable_ = false;
  GroupRules rules_;
  std::vector<GroupStep> groups_;
  Tensors parameters_;  // of all groups
};

}  // namespace lockstep
