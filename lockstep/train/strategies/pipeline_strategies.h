// Strategies over pipelines of stages, on threads of one process or on ranks.
#pragma once

#include <memory>

#include <lockstep/train/strategies/strategy.h>

namespace lockstep::train {

/// Strategy "pipeline": one model in stages, on threads if the group has one rank, otherwise on the
/// ranks. Collective over several ranks. Throws ConfigError for options that pipelines do not
/// support, and unless each worker has a rank or a device.
std::unique_ptr<Strategy> make_pipeline_strategy(ProcessGroup group,
                                                 const StrategyOptions& options);

/// Strategy "hybrid": the ranks are a DeviceMesh of pipelines. With two stages, ranks 0 and 1 are
/// the first pipeline, 2 and 3 the second one. Collective. Throws ConfigError for options that
/// pipelines do not support, and unless the number of ranks is a multiple of a pipeline's number of
/// workers.
std::unique_ptr<Strategy> make_hybrid_strategy(ProcessGroup group, const StrategyOptions& options);

}  // namespace lockstep::train
