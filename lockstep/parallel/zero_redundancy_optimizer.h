// ZeroRedundancyOptimizer: each rank keeps the optimizer's state of its share of the parameters,
// updates that share, and gives it to the others (ZeRO, stage 1: Rajbhandari et al., SC 2020).
//
//   lockstep::DistributedDataParallel ddp(
//       net, group, {.parameter_memory = lockstep::ParameterMemory::kFlat});
//   lockstep::ZeroRedundancyOptimizer optimizer(ddp.core(), *net,
//                                               lockstep::AdamWOptions{.lr = 1e-3});
//   for (...) {
//     optimizer.zero_grad();
//     criterion(ddp.forward(x), y).backward();
//     optimizer.clip_grad_norm(1.0);
//     optimizer.step();
//   }
//
// The results are those of DistributedDataParallel with one optimizer for each rank: bit for bit on
// shared memory, elsewhere to the order of additions. A group of N ranks needs an N-th of the state
// on each.
//
// With kFlat backward reduce-scatters the gradients and step() gathers the parameters. With
// kShared, on one host, all ranks have one copy of the parameters, and step() is one pass over
// memory that averages, updates and writes a rank's share for all: nothing is communicated but two
// barriers (docs/adr/011-zero-on-shared-memory.md).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/distributed_data_parallel.h>

namespace lockstep {

class ShardedStep;

/// A parameter without a gradient is skipped, as by Optimizer. After backward() the parameters'
/// grad() is no mean: only this optimizer knows the means, on each rank those of its share; clip
/// and scale through it. Accumulate over several backward()s under no_sync(), all but the last, and
/// clear before the first, by zero_grad() here or of the module: a backward() that reduces what has
/// been added to a result, a step made or not, is a ConfigError. (With kShared only gradients() and
/// clip_grad_norm() make results.) With kShared whoever writes a parameter writes everybody's.
///
/// Not thread-safe. Errors are the group's; after one in step() the parameters are undefined.
class ZeroRedundancyOptimizer {
 public:
  /// Before the first backward; it becomes the communication hook of `core`, which must outlive it
  /// and averages no gradients without it. `module` is the one that `core` wraps, for the names.
  /// ConfigError for options that cannot be, for ParameterMemory::kAsIs, for sparse gradients, and
  /// where `core` has a hook.
  ZeroRedundancyOptimizer(DdpCore& core, const torch::nn::Module& module,
                          const OptimizerOptions& options);
  /// With options for each group of parameters; see parameter_groups.h. ConfigError also for a
  /// parameter of `core` that is in no group, and when the groups remember different things (one
  /// has momentum or amsgrad, another none).
  ZeroRedundancyOptimizer(DdpCore& core, const torch::nn::Module& module,
                          std::vector<ParameterGroup> groups);

  /// Collective. On return every rank has the new parameters. Ranks without a batch of their own
  /// call it too. ConfigError, and the end of the group, when a parameter lies no longer where
  /// DistributedDataParallel put it; see ParameterMemory.
  void step();
  /// In place: gradients are views into the reducer's buckets.
  void zero_grad();

  /// Collective. Scales the mean gradients so that the norm of all of them is at most `max_norm`,
  /// and returns the norm before, on every rank, as clip_grad_norm_() does; in the type that the
  /// gradients' types promote to.
  torch::Tensor clip_grad_norm(double max_norm);

  /// Collective. The mean gradients of this rank's share, flat, to be scaled in place before
  /// step(); all ranks' together are every element once.
  Tensors gradients();
  /// Collective. The mean gradients of `parameters`, which are the same on all ranks: a flat tensor
  /// for each that lies in this rank's share, in whole or in part. For norms that leave others out.
  Tensors gradients_of(const Tensors& parameters);
  /// Collective. For GradScaler, which takes this optimizer like any other.
  void reduce_found_inf(torch::Tensor& found_inf) { group_.all_reduce(found_inf, ReduceOp::kMax); }

  /// As Optimizer's.
  std::size_t groups() const;
  double lr(std::size_t group = 0) const;
  void set_lr(std::size_t group, double lr);
  void set_lr(double lr);
  void scale_lr(double factor);
  double momentum(std::size_t group = 0) const;
  void set_momentum(double momentum);

  /// Collective. On rank `root` the state of all parameters, as Optimizer::state() of an optimizer
  /// that is not sharded has it; elsewhere nothing.
  NamedTensors state_dict(int root = 0);
  /// Collective. Takes over what rank `root` gives, of any number of ranks and any kind of
  /// optimizer with the same rule. CheckpointError on all ranks, and nothing changed, when it does
  /// not fit.
  void load_state_dict(const NamedTensors& state, int root = 0);

  /// Seconds for which step(), gradients() and clip_grad_norm() waited in barriers and for gathered
  /// parameters, since construction.
  double communication_seconds() const;

  /// Bytes of the state of this rank's share; 0 before the first step.
  std::int64_t state_bytes() const;

 private:
  ProcessGroup group_;
  const std::vector<GradBucket>* buckets_;
  std::shared_ptr<ShardedStep> sharded_;  // shared with the hook
};

}  // namespace lockstep
