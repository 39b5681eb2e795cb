// Strategy "dp": one process, a replica of the module on each of its devices (DataParallel).
#pragma once

#include <memory>

#include <lockstep/train/strategies/strategy.h>

namespace lockstep::train {

/// Throws ConfigError for more than one rank. Running statistics, such as those of batch
/// normalisation, come from the first replica's part of each batch. On CPUs the replicas share one
/// random number generator, so two runs with dropout differ. If StepSettings::deterministic is set,
/// the forwards of replicas that draw random numbers take turns instead. The first training forward
/// shows whether they draw; step() throws ConfigError if a module draws for the first time in a
/// later forward.
std::unique_ptr<Strategy> make_data_parallel_strategy(ProcessGroup group,
                                                      const StrategyOptions& options);

}  // namespace lockstep::train
