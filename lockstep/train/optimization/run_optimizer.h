// The optimizer of a run, whose state is replicated on each rank or sharded over the ranks.
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <lockstep/train/optimization/optimizer_groups.h>

namespace lockstep {

/// Not thread-safe. All calls except lr(), set_lr() and set_momentum() may be collective: all ranks
/// must make them in the same order.
class LOCKSTEP_API RunOptimizer {
 public:
  virtual ~RunOptimizer() = default;

  virtual void step() = 0;
  virtual void zero_grad() = 0;
  /// The mean gradients that this rank scales before step(): all of them, or its shard.
  virtual Tensors gradients() = 0;
  /// The subset of gradients() that belongs to `parameters`, a subset of the parameters that this
  /// optimizer steps. All ranks that have these parameters must pass the same ones.
  virtual Tensors gradients_of(const Tensors& parameters) = 0;
  /// Clips by the norm of all gradients, as clip_grad_norm_() does.
  virtual void clip_grad_norm(double max_norm) = 0;
  /// Connects `scaler` to the other ranks, so that all ranks skip the same steps.
  virtual void agree_through(GradScaler& scaler) = 0;

  /// Like Optimizer::set_capturable(). Throws ConfigError if the optimizer does not support it.
  virtual void set_capturable(bool on);
  /// Whether the device can decide to skip a step, using the scaler passed to agree_through(); if
  /// so, call GradScaler::step_on_device(). Called once the step's gradients are complete.
  virtual bool can_skip_on_device() { return false; }
  /// Like Optimizer::step_unless(). Requires can_skip_on_device().
  virtual void step_unless(const torch::Tensor& found_inf);

  /// Seconds that the calls above have spent waiting for other ranks and their parameters, since
  /// construction.
  virtual double communication_seconds() const { return 0; }

  /// The learning rate of the first group.
  virtual double lr() const = 0;
  /// Sets the learning rate of all groups.
  virtual void set_lr(double lr) = 0;
  /// Sets the learning rate of each group to its factor times the one in the group's options. There
  /// is a factor for each group of the whole model (OptimizerGroups), and a single one for an
  /// optimizer of the program's own.
  virtual void scale_lrs(const std::vector<double>& factors) = 0;
  /// SGD's momentum, Adam's and AdamW's beta1 (Optimizer::set_momentum()).
  virtual void set_momentum(double momentum) = 0;

  /// On rank 0, the state of all parameters in the form of Optimizer::state(); unspecified on other
  /// ranks.
  virtual NamedTensors state() = 0;
  /// Loads the state that rank 0 passes. Throws CheckpointError if it does not fit.
  virtual void load_state(const NamedTensors& state) = 0;
};

/// An optimizer whose state is replicated on every rank. It steps those of `parameters` that are in
/// a group, and names their state after the given names. All must require a gradient.
LOCKSTEP_API std::unique_ptr<RunOptimizer> make_replicated_optimizer(const NamedTensors& parameters,
                                                                     const OptimizerGroups& groups,
                                                                     ProcessGroup group);

/// An optimizer whose state is sharded over the ranks; see ZeroRedundancyOptimizer for `core`.
/// `parameters` are those of `core`, with the names that their state gets.
LOCKSTEP_API std::unique_ptr<RunOptimizer> make_sharded_optimizer(DdpCore& core,
                                                                  const torch::nn::Module& module,
                                                                  const NamedTensors& parameters,
                                                                  const OptimizerGroups& groups);

}  // namespace lockstep
