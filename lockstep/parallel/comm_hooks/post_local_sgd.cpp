#include <lockstep/parallel/comm_hooks/post_local_sgd.h>

#include <memory>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/comm_hooks/step_counter.h>

namespace lockstep {

CommHook post_local_sgd_hook(ProcessGroup group, std::optional<ProcessGroup> subgroup,
                             std::int64_t start_local_sgd_iter) {
  if (start_local_sgd_iter < 0) {
    throw ConfigError(
        lockstep::str("post_local_sgd_hook: start_local_sgd_iter must be at least 0, got ",
                      start_local_sgd_iter));
  }
  CommHook global = all_reduce_hook(std::move(group));
  CommHook local = subgroup ? all_reduce_hook(*std::move(subgroup)) : noop_hook();
  return [global = std::move(global), local = std::move(local),
          steps = std::make_shared<parallel::StepCounter>(),
          start_local_sgd_iter](GradBucket& bucket) {
    return steps->step_of(bucket.index) < start_local_sgd_iter ? global(bucket) : local(bucket);
  };
}

PeriodicModelAverager::PeriodicModelAverager(ProcessGroup group,
                                             std::vector<torch::Tensor> parameters,
                                             const PeriodicModelAveragerOptions& options)
    : group_(std::move(group)), options_(options), step_(options.first_step) {
  if (options.period < 1 || options.warmup_steps < 0 || options.first_step < 0) {
    throw ConfigError(
        lockstep::str("PeriodicModelAverager: period must be at least 1, and warmup_steps and "
                      "first_step at least 0; got ",
                      options.period, ", ", options.warmup_steps, " and ", options.first_step));
  }
  for (const torch::Tensor& parameter : optim::distinct(parameters)) {
    if (parameter.requires_grad()) parameters_.push_back(parameter);
  }
}

bool PeriodicModelAverager::average_parameters() {
  const std::int64_t since_warmup = step_++ - options_.warmup_steps;
  if (since_warmup < 0 || since_warmup % options_.period != 0) return false;
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& parameter : parameters_) values.push_back(parameter.detach());
  group_.all_reduce_coalesced(std::move(values), ReduceOp::kAverage);
  return true;
}

}  // namespace lockstep
