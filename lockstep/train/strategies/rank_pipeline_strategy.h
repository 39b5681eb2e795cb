// Strategies "pipeline" and "hybrid" on ranks: one pipeline, or several that average their
// gradients (DistributedPipeline, DeviceMesh).
#pragma once

#include <memory>
#include <string>

#include <lockstep/train/strategies/strategy.h>

namespace lockstep::train {

/// Collective. The ranks of `group` form `replicas` pipelines of consecutive ranks. Throws
/// ConfigError for options that pipelines do not support.
std::unique_ptr<Strategy> make_rank_pipeline_strategy(std::string name, ProcessGroup group,
                                                      int replicas, const StrategyOptions& options);

}  // namespace lockstep::train
