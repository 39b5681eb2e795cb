// Strategies "pipeline" and "hybrid" on ranks: one pipeline, or several of them that average their
// gradients (DistributedPipeline, DeviceMesh).
#pragma once

#include <memory>
#include <string>

#include <lockstep/train/strategies/strategy.h>

namespace lockstep {

/// Collective. `replicas` pipelines, one behind the other, make up the ranks of `group`.
/// ConfigError for options that no pipeline can have.
std::unique_ptr<Strategy> make_rank_pipeline_strategy(std::string name, ProcessGroup group,
                                                      int replicas, const StrategyOptions& options);

}  // namespace lockstep
