// The optimizer of a run, whose state may lie on each rank or in parts on all of them.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>

namespace lockstep {

/// Not thread-safe. All calls but lr(), set_lr() and set_momentum() may be collective: all ranks
/// make them in one order.
class RunOptimizer {
 public:
  virtual ~RunOptimizer() = default;

  virtual void step() = 0;
  virtual void zero_grad() = 0;
  /// The mean gradients that this rank scales before step(): all, or its share of them.
  virtual Tensors gradients() = 0;
  /// What gradients() has of `parameters`, some of those that this optimizer steps. All ranks with
  /// the same parameters give the same ones.
  virtual Tensors gradients_of(const Tensors& parameters) = 0;
  /// As clip_grad_norm_() of all gradients.
  virtual void clip_grad_norm(double max_norm) = 0;
  /// So that all ranks skip the same steps.
  virtual void agree_through(GradScaler& scaler) = 0;

  /// As Optimizer::set_capturable(). ConfigError for an optimizer that has no such steps.
  virtual void set_capturable(bool on);
  /// Whether the device can decide, by the scaler that agree_through() was given, to skip a step:
  /// then call GradScaler::step_on_device(). Called with the gradients of a step.
  virtual bool can_skip_on_device() { return false; }
  /// As Optimizer::step_unless(): where can_skip_on_device().
  virtual void step_unless(const torch::Tensor& found_inf);

  /// Seconds for which the calls above have waited for other ranks and their parameters, since
  /// construction.
  virtual double communication_seconds() const { return 0; }

  virtual double lr() const = 0;
  virtual void set_lr(double lr) = 0;
  /// SGD's momentum, Adam's and AdamW's beta1 (Optimizer::set_momentum()).
  virtual void set_momentum(double momentum) = 0;

  /// On rank 0 the state of all parameters as Optimizer::state() has it; elsewhere what the caller
  /// should not look at.
  virtual NamedTensors state() = 0;
  /// Takes over what rank 0 gives. CheckpointError when it does not fit.
  virtual void load_state(const NamedTensors& state) = 0;
};

/// Every rank has all of the state.
std::unique_ptr<RunOptimizer> make_replicated_optimizer(const torch::nn::Module& module,
                                                        const OptimizerOptions& options,
                                                        ProcessGroup group);
/// Steps only `parameters`, which all require a gradient, and names their state as they are named
/// there.
std::unique_ptr<RunOptimizer> make_replicated_optimizer(const NamedTensors& parameters,
                                                        const OptimizerOptions& options,
                                                        ProcessGroup group);

/// Every rank has its share; see ZeroRedundancyOptimizer for `core`.
std::unique_ptr<RunOptimizer> make_sharded_optimizer(DdpCore& core, const torch::nn::Module& module,
                                                     const OptimizerOptions& options);
/// Names the parameters' state as `parameters` names them, not as the module does.
std::unique_ptr<RunOptimizer> make_sharded_optimizer(DdpCore& core, const torch::nn::Module& module,
                                                     const NamedTensors& parameters,
                                                     const OptimizerOptions& options);

}  // namespace lockstep
