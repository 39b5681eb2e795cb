// Strategy "dp": one process, a replica of the module on each of its devices (DataParallel).
#pragma once

#include <memory>

#include <lockstep/train/strategies/strategy.h>

namespace lockstep {

/// ConfigError for more than one rank. Running statistics, as of batch normalisation, are those of
/// the first replica's part of each batch. On CPUs the replicas share one generator of random
/// numbers, so that two runs with dropout differ, unless StepSettings::deterministic is set: then
/// the forwards of replicas that draw take turns. Whether they draw is told by their first training
/// forward; step() throws ConfigError when a module draws for the first time in a later one.
std::unique_ptr<Strategy> make_data_parallel_strategy(ProcessGroup group,
                                                      const StrategyOptions& options);

}  // namespace lockstep
