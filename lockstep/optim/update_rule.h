// The arithmetic of an optimizer, apart from where its tensors live.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/optim/device_step.h>
#include <lockstep/optim/options.h>

namespace lockstep {

using Tensors = std::vector<torch::Tensor>;

/// Element by element: parameters may come one by one, as flat buckets or as slices of them, always
/// with the same result, to the bit. Not thread-safe.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  virtual const std::string& name() const = 0;  ///< "sgd", "adam", "adamw"
  /// What is remembered of each element, zero before the first step, by PyTorch's names:
  /// "momentum_buffer"; "exp_avg", "exp_avg_sq", "max_exp_avg_sq".
  virtual const std::vector<std::string>& state_names() const = 0;

  /// One step, in place. `states[s][i]` is state s of `parameters[i]`. All four have the same
  /// shapes, strides and dtype for an i, and lie densely in memory. `step` counts from 1.
  virtual void update(const Tensors& parameters, const Tensors& gradients,
                      const std::vector<Tensors>& states, std::int64_t step) = 0;
  /// As above, with the same result, but the numbers are read on the device: for launches that a
  /// CUDA graph replays. momentum() and weight decay stay those of the launch. All parameters are
  /// on one device. On a CPU it gives the bits of the step above.
  virtual void update(const Tensors& parameters, const Tensors& gradients,
                      const std::vector<Tensors>& states, const DeviceStep& step) = 0;

  /// Whether update() depends on `step`, which a checkpoint must then hold.
  virtual bool counts_steps() const { return true; }

  virtual double lr() const = 0;
  virtual void set_lr(double lr) = 0;

  /// SGD's momentum, Adam's and AdamW's beta1: what a one-cycle schedule moves beside the rate.
  virtual double momentum() const = 0;
  /// ConfigError for a value that the options could not have either, and for an SGD made without
  /// momentum, which keeps no buffer for it.
  virtual void set_momentum(double momentum) = 0;
};

/// ConfigError for options that cannot be.
std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options);

}  // namespace lockstep
