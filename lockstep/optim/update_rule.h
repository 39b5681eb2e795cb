// The arithmetic of an optimizer, independent of where its tensors are stored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/optim/device_step.h>
#include <lockstep/optim/options.h>

namespace lockstep {
using Tensors = std::vector<torch::Tensor>;
}  // namespace lockstep

namespace lockstep::detail {

/// Works element by element: parameters may be passed individually, as flat buckets or as slices of
/// these, with bitwise equal results. Not thread-safe.
class LOCKSTEP_API UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  virtual const std::string& name() const = 0;  ///< "sgd", "adam", "adamw"
  /// Names of the state kept for each element, zero before the first step, as in PyTorch:
  /// "momentum_buffer"; "exp_avg", "exp_avg_sq", "max_exp_avg_sq".
  virtual const std::vector<std::string>& state_names() const = 0;

  /// One step, in place. `states[s][i]` is state s of `parameters[i]`. For each i, all tensors have
  /// the same shape, strides and dtype, and are dense in memory. `step` counts from 1.
  virtual void update(const Tensors& parameters, const Tensors& gradients,
                      const std::vector<Tensors>& states, std::int64_t step) = 0;
  /// As above, with the same result, but reads the values on the device, so that a CUDA graph can
  /// replay the launches. momentum() and weight decay remain those of the launch. All parameters
  /// must be on one device. On a CPU the result is bitwise that of the step above.
  virtual void update(const Tensors& parameters, const Tensors& gradients,
                      const std::vector<Tensors>& states, const DeviceStep& step) = 0;

  /// Whether update() depends on `step`, which checkpoints must then contain.
  virtual bool counts_steps() const { return true; }

  /// Whether a step is w -= lr * gradient, which is also defined for sparse gradients.
  virtual bool takes_sparse_gradients() const { return false; }

  virtual double lr() const = 0;
  virtual void set_lr(double lr) = 0;

  /// SGD's momentum, or the beta1 of Adam and AdamW; a one-cycle schedule changes it.
  virtual double momentum() const = 0;
  /// Throws ConfigError for a value that is invalid in the options, and for an SGD made without
  /// momentum, which has no buffer for it.
  virtual void set_momentum(double momentum) = 0;
};

/// Whether a step leaves zero parameters with zero gradients unchanged, such as the padding of a
/// flat bucket. False for Adam with eps = 0, which divides zero by zero. Finds out by performing a
/// step.
LOCKSTEP_API bool keeps_zeros(UpdateRule& rule);

/// Throws ConfigError for invalid options.
LOCKSTEP_API std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options);

}  // namespace lockstep::detail
