// How the ranks of a run, and the devices of a rank, divide the work: strategy, pipeline and batch.
#pragma once

#include <lockstep/cli/train/train_settings.h>

namespace lockstep::cli {

/// Sets the world, the strategy with its options, and each rank's share of a batch and of the
/// loader threads. `settings.recipe` and `settings.timeout` must already be set. Throws
/// ConfigError, which names the option, if a value is invalid or the strategy does not support the
/// option.
void resolve_strategy(const TrainArguments& arguments, TrainSettings& settings);

}  // namespace lockstep::cli
