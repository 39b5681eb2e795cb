// ZeroRedundancyOptimizer: each rank keeps the optimizer state for its share of the parameters,
// updates that share, and sends it to the others (ZeRO, stage 1: Rajbhandari et al., SC 2020).
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
// The results equal those of DistributedDataParallel with one full optimizer per rank: bit for bit
// on shared memory, elsewhere up to the order of additions. With N ranks, each holds 1/N of the
// state.
//
// With kFlat, backward reduce-scatters the gradients and step() all-gathers the parameters. With
// kShared, on one host, all ranks share one copy of the parameters, and step() is one pass over
// memory in which a rank averages, updates and writes its share for all; the only communication is
// two barriers (docs/adr/011-zero-on-shared-memory.md).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/distributed_data_parallel.h>

namespace lockstep::detail {
class ShardedStep;
}  // namespace lockstep::detail

namespace lockstep {

/// A parameter without a gradient is skipped, as in Optimizer. After backward() the parameters'
/// grad() is not the mean: only this optimizer has the means, on each rank for its own share; clip
/// and scale gradients through it. To accumulate over several backward()s, run all but the last
/// under no_sync(), and clear the gradients before the first with zero_grad() of this optimizer or
/// of the module. A backward() that reduces gradients which were added to an already reduced
/// result, whether stepped or not, throws ConfigError. (With kShared, only gradients() and
/// clip_grad_norm() reduce before step().) With kShared, a write to a parameter changes it on all
/// ranks.
///
/// Not thread-safe. Errors are the group's; after an error in step() the parameters are undefined.
class LOCKSTEP_API ZeroRedundancyOptimizer {
 public:
  /// Call it before the first backward; the optimizer becomes the communication hook of `core`.
  /// `core` must outlive the optimizer and averages no gradients after it is destroyed. `module` is
  /// the one that `core` wraps; it provides the names. Throws ConfigError for invalid options, for
  /// ParameterMemory::kAsIs, for sparse gradients, and if `core` already has a hook.
  ZeroRedundancyOptimizer(DdpCore& core, const torch::nn::Module& module,
                          const OptimizerOptions& options);
  /// With options for each group of parameters; see parameter_groups.h. Also throws ConfigError for
  /// a parameter of `core` that is in no group, and if the groups keep different state (one has
  /// momentum or amsgrad, another does not).
  ZeroRedundancyOptimizer(DdpCore& core, const torch::nn::Module& module,
                          std::vector<ParameterGroup> groups);

  /// Collective. On return every rank has the new parameters. Ranks without a batch must call it
  /// too. Throws ConfigError and aborts the group if a parameter no longer lies where
  /// DistributedDataParallel put it (see ParameterMemory), as after Module::to() or set_data(), and
  /// if its gradient was replaced by another tensor.
  void step();
  /// Collective. Like step() if `found_inf` is 0 on the ranks, which must agree on it
  /// (reduce_found_inf()). If it is 1, nothing changes and no step is counted. The device decides,
  /// and the host does not wait for it: see GradScaler::step_on_device(). Throws ConfigError unless
  /// `found_inf` is a float tensor of one element on the parameters' device, and with kShared.
  void step_unless(const torch::Tensor& found_inf);
  /// Clears in place: gradients are views into the reducer's buckets. Resets the gradients of
  /// parameters that were frozen meanwhile, so that step() skips these.
  void zero_grad();

  /// Collective. Scales the mean gradients so that their total norm is at most `max_norm`, and
  /// returns the norm before scaling on every rank, like clip_grad_norm_(). The norm has the type
  /// to which the gradients' types promote.
  torch::Tensor clip_grad_norm(double max_norm);

  /// Collective. The mean gradients of this rank's share, as flat tensors, which may be scaled in
  /// place before step(). All ranks' results together contain every element once.
  Tensors gradients();
  /// Collective. The mean gradients of `parameters`, which are the same on all ranks: one flat
  /// tensor for each parameter that lies wholly or partly in this rank's share. Use it for norms
  /// over a subset of the parameters.
  Tensors gradients_of(const Tensors& parameters);
  /// Collective. Sets `found_inf` to its maximum over the ranks. Called by GradScaler, which
  /// accepts this optimizer like any other.
  void reduce_found_inf(torch::Tensor& found_inf);

  /// These functions behave like those of Optimizer.
  std::size_t groups() const;
  double lr(std::size_t group = 0) const;
  void set_lr(std::size_t group, double lr);
  void set_lr(double lr);
  void scale_lr(double factor);
  double momentum(std::size_t group = 0) const;
  void set_momentum(double momentum);

  /// Collective. Rank `root` gets the state of all parameters, in the format of Optimizer::state()
  /// of an unsharded optimizer; the other ranks get nothing.
  NamedTensors state_dict(int root = 0);
  /// Collective. Loads the state that rank `root` gives. It may come from any number of ranks and
  /// any kind of optimizer with the same update rule. Throws CheckpointError on all ranks, with
  /// nothing changed, if it does not fit.
  void load_state_dict(const NamedTensors& state, int root = 0);

  /// Seconds that step(), gradients(), clip_grad_norm() and reduce_found_inf() have waited for
  /// other ranks, since construction.
  double communication_seconds() const;

  /// Bytes of optimizer state for this rank's share; 0 before the first step.
  std::int64_t state_bytes() const;

 private:
  ProcessGroup group_;
  const std::vector<GradBucket>* buckets_;
  std::shared_ptr<detail::ShardedStep> sharded_;  // shared with the hook
};

}  // namespace lockstep
