// Strategies over DistributedDataParallel: a replica on each rank, gradients averaged in backward.
#pragma once

#include <memory>

#include <lockstep/train/strategies/strategy.h>

namespace lockstep::train {

/// Strategy "ddp": every rank steps all parameters.
std::unique_ptr<Strategy> make_ddp_strategy(ProcessGroup group, const StrategyOptions& options);

/// Strategy "zero1": every rank steps its shard of the parameters (ZeroRedundancyOptimizer).
std::unique_ptr<Strategy> make_zero_strategy(ProcessGroup group, const StrategyOptions& options);

}  // namespace lockstep::train
