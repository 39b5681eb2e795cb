// The work of each process in `lockstep bench step --strategy all`.
#pragma once

#include <lockstep/bench/strategies/figures.h>
#include <lockstep/bench/strategies/settings.h>

namespace lockstep::bench {

/// To be called in a rank that launch_ranks() started. Joins the group, trains in the configuration
/// `way` for one round and writes the measurements to this rank's place in `figures`. Throws on any
/// failure; the error is a ConfigError if the model or this machine does not support the way.
void bench_strategy_rank(const BenchStrategiesSettings& settings, const StrategyWay& way,
                         SharedFigures& figures);

}  // namespace lockstep::bench
