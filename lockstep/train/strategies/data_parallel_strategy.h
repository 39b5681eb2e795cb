// Strategy "dp": one process, a replica of the module on each of its devices (DataParallel).
#pragma once

#include <memory>

#include <lockstep/train/strategies/strategy.h>

namespace lockstep::train {

/// ConfigError for more than one rank. Running statistics, such as those of batch normalisation,
/// come from the first replica's part of each batch. On CPUs the replicas share one random number
/// generator, so that two runs with dropout differ, unless StepSettings::deterministic is set: then
/// forwards of replicas that draw random numbers take turns. Their first training forward shows
/// whether they draw; step() throws ConfigError if a module draws for the first time in a later
/// one.
std::unique_ptr<Strategy> make_data_parallel_strategy(ProcessGroup group,
                                                      const StrategyOptions& options);

}  // namespace lockstep::train
