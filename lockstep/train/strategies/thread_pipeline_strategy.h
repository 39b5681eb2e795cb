// Strategy "pipeline" in one process: the stages of the model on threads (Pipeline).
#pragma once

#include <memory>

#include <lockstep/train/strategies/strategy.h>

namespace lockstep::train {

/// `group` has one rank. Throws ConfigError for options that pipelines do not support.
std::unique_ptr<Strategy> make_thread_pipeline_strategy(ProcessGroup group,
                                                        const StrategyOptions& options);

}  // namespace lockstep::train
