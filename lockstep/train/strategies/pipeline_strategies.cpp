#include <lockstep/train/strategies/pipeline_strategies.h>

#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/train/strategies/rank_pipeline_strategy.h>
#include <lockstep/train/strategies/thread_pipeline_strategy.h>

namespace lockstep::train {
namespace {

std::string shape_of_pipeline(const StrategyOptions& options, int workers) {
  return lockstep::str(amount_of(options.stages, "stage"), " by the schedule ",
                       schedule_name(options.schedule), options.stages == 1 ? " needs " : " need ",
                       amount_of(workers, "rank"));
}

}  // namespace

std::unique_ptr<Strategy> make_pipeline_strategy(ProcessGroup group,
                                                 const StrategyOptions& options) {
  if (options.shard_optimizer) {
    throw ConfigError(
        "strategy pipeline: shard_optimizer belongs to strategy hybrid, where ranks have the same "
        "stages");
  }
  if (group.size() == 1) return make_thread_pipeline_strategy(std::move(group), options);
  const int workers = workers_for(options.schedule, options.stages);
  if (group.size() != workers) {
    throw ConfigError(lockstep::str("strategy pipeline: ", shape_of_pipeline(options, workers),
                                    ", or one process with threads, but there are ", group.size(),
                                    group.size() % workers == 0 ? "; use strategy hybrid" : ""));
  }
  return make_rank_pipeline_strategy("pipeline", std::move(group), 1, options);
}

std::unique_ptr<Strategy> make_hybrid_strategy(ProcessGroup group, const StrategyOptions& options) {
  const int workers = workers_for(options.schedule, options.stages);
  if (group.size() % workers != 0) {
    throw ConfigError(lockstep::str("strategy hybrid: ", shape_of_pipeline(options, workers),
                                    " for each replica; the number of ranks must be a multiple "
                                    "of that, got ",
                                    group.size()));
  }
  const int replicas = group.size() / workers;
  return make_rank_pipeline_strategy("hybrid", std::move(group), replicas, options);
}

}  // namespace lockstep::train
