// Post-local SGD (Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", 2018): after an
// initial period of averaging over all ranks, gradients are averaged only within small subgroups,
// or not at all, and parameters are averaged over all ranks every few steps.
//
//   auto host = group.split(group.rank() / ranks_per_host);
//   ddp.register_comm_hook(lockstep::post_local_sgd_hook(group, host, 100));
//   lockstep::PeriodicModelAverager averager(group, net->parameters(),
//                                            {.period = 4, .warmup_steps = 100});
//   for (...) { ...; optimizer.step(); averager.average_parameters(); }
//
// Like ddp_comm_hooks.post_localSGD_hook and model_averaging.averagers in
// torch.distributed.algorithms.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/parallel/ddp/grad_bucket.h>

namespace lockstep {

/// Averages over `group` for the first `start_local_sgd_iter` steps, then over `subgroup`; without
/// a subgroup every rank keeps its own gradients. To resume training at step s, pass max(0,
/// start_local_sgd_iter - s). Throws ConfigError for a negative start.
LOCKSTEP_API CommHook post_local_sgd_hook(ProcessGroup group, std::optional<ProcessGroup> subgroup,
                                          std::int64_t start_local_sgd_iter);

struct LOCKSTEP_API PeriodicModelAveragerOptions {
  std::int64_t period = 1;        ///< steps between averages
  std::int64_t warmup_steps = 0;  ///< usually start_local_sgd_iter; replicas are equal until then
  std::int64_t first_step = 0;    ///< the step at which training resumes
};

/// Averages the parameters over the ranks of `group` in step warmup_steps, counted from 0, and in
/// every period-th step after it. Holds the tensors. Not thread-safe.
class LOCKSTEP_API PeriodicModelAverager {
 public:
  /// `parameters` are the same on all ranks, in the same order; those that require no gradient are
  /// skipped, because training does not change them. Throws ConfigError for a period below 1 or
  /// negative steps.
  PeriodicModelAverager(ProcessGroup group, std::vector<torch::Tensor> parameters,
                        const PeriodicModelAveragerOptions& options);

  /// Call it once per step, after the optimizer's step. Collective in the steps that average: one
  /// all-reduce for each parameter type. Returns whether this call averaged.
  bool average_parameters();

  std::int64_t step() const { return step_; }  ///< the step of the next call

 private:
  ProcessGroup group_;
  std::vector<torch::Tensor> parameters_;
  PeriodicModelAveragerOptions options_;
  std::int64_t step_;
};

}  // namespace lockstep
