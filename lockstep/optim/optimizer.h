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
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/optim/parameter_groups.h>
#include <lockstep/optim/update_rule.h>

namespace lockstep {

/// torch.optim's SGD, Adam or AdamW, up to rounding. Calls LibTorch's fused kernel once per step,
/// with flat tensors for parameters that are adjacent in memory and have adjacent gradients
/// (FlatRuns).
///
/// Holds the trainable parameters, each once, but not the module. A parameter without a gradient is
/// skipped and its step count does not change. Sparse gradients are allowed only for SGD without
/// momentum or weight decay. Make the optimizer after moving the module to its device or type, and
/// make another one after unfreezing, registering or replacing a parameter. Parameters in memory
/// that ranks share (DistributedDataParallel's kShared) need ZeroRedundancyOptimizer: with this
/// class every rank would step them, which is not detected. Not thread-safe.
class LOCKSTEP_API Optimizer {
 public:
  /// Throws ConfigError for invalid options, if a parameter's memory has holes or overlaps, and if
  /// two parameters share memory, as set_data() makes them.
  Optimizer(const torch::nn::Module& module, const OptimizerOptions& options);
  Optimizer(const NamedTensors& parameters, const OptimizerOptions& options);
  /// Takes groups with separate options, such as different learning rates or no weight decay: see
  /// parameter_groups.h. Throws ConfigError unless all are options of one optimizer, and for a
  /// parameter in two groups. A parameter in no group is not stepped.
  explicit Optimizer(std::vector<ParameterGroup> groups);
  ~Optimizer();
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  /// Throws ConfigError, with nothing changed, for a sparse gradient that the options do not allow,
  /// and for a parameter with a gradient whose type, shape or device is no longer that of its
  /// gradient or of its state, as after Module::to(), set_data() or resize_().
  void step();

  /// While on, step() keeps learning rates and step counts on the device, like torch.optim with
  /// capturable=True: a CUDA graph may record step() and replay it, and set_lr() affects the
  /// replays. The results are those of ordinary steps, on a CPU bit for bit. set_momentum() affects
  /// only later launches. All parameters of a group must be on one device, and gradients dense.
  /// After a step has been recorded (CaptureScope), the same parameters must have gradients in
  /// every step; otherwise step() throws ConfigError. state() waits for the device. Load state
  /// before this call.
  void set_capturable(bool on);
  bool is_capturable() const { return capturable_; }
  /// Like step() if `found_inf` is 0. If it is 1, nothing changes and no step is counted. The
  /// device decides, and the host does not wait for it. `found_inf` is a float tensor of one
  /// element on the parameters' device, as in GradScaler; otherwise throws ConfigError, as it does
  /// unless capturable.
  void step_unless(const torch::Tensor& found_inf);

  /// Zeroes the gradients in place, because they may be views into a reducer's buckets. Resets the
  /// gradients of parameters that were frozen (requires_grad_(false)) since construction, so that
  /// step() skips these, and gradients whose type, shape or device is no longer the parameter's.
  void zero_grad();

  std::size_t groups() const;
  /// lr() and set_lr() throw ConfigError if there is no such group.
  double lr(std::size_t group = 0) const;
  void set_lr(std::size_t group, double lr);
  void set_lr(double lr);
  /// Sets each group's learning rate to `factor` times the one in its options, as schedules do.
  void scale_lr(double factor);

  /// SGD's momentum, or the beta1 of Adam and AdamW. Throws ConfigError if there is no such group.
  double momentum(std::size_t group = 0) const;
  /// Sets the momentum of all groups, as a one-cycle schedule does. Throws ConfigError for a value
  /// that is invalid in the options, and for an SGD made without momentum, which has no buffer for
  /// it.
  void set_momentum(double momentum);

  const std::string& name() const;                           ///< "sgd", "adam", "adamw"
  const Tensors& parameters() const { return parameters_; }  ///< parameters of all groups
  /// The gradients that are defined.
  Tensors gradients() const;

  /// The optimizer's state, for saving and loading: "exp_avg.conv1.weight" and so on, and, if the
  /// rule counts steps, "step.conv1.weight", an int64 on the CPU. Shares memory until the next
  /// step(). Names are those of parameters, whatever their group, so the state can be loaded with
  /// other groups.
  NamedTensors state() const;

 private:
  struct Checked {
    std::vector<ParameterGroup> groups;
  };
  explicit Optimizer(const Checked& given);
  void write_lrs();
  void step_groups(const torch::Tensor& found_inf);

  bool capturable_ = false;
  struct Groups;
  std::unique_ptr<Groups> groups_;
  Tensors parameters_;  // parameters of all groups
};

}  // namespace lockstep
