// Strategies over pipelines of stages, on threads of one process or on ranks.
#pragma once

#include <memory>

#include <lockstep/train/strategy.h>

namespace lockstep {

/// "pipeline": one model in stages, on threads where the group has one rank, else on the ranks.
/// Collective over several ranks. ConfigError for options that no pipeline can have, for another
/// number of ranks than workers, and for devices that are not one for each worker.
std::unique_ptr<Strategy> make_pipeline_strategy(ProcessGroup group,
                                                 const StrategyOptions& options);

/// "hybrid": the ranks are a DeviceMesh of pipelines, one behind the other: ranks 0 and 1 have the
/// two stages of the first one, 2 and 3 those of the second. Collective. ConfigError as above, and
/// for a number of ranks that the workers of a pipeline do not divide.
std::unique_ptr<Strategy> make_hybrid_strategy(ProcessGroup group, const StrategyOptions& options);

}  // namespace lockstep
