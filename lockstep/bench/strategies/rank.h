// The work of each process of a way in `lockstep bench step --strategy all`.
#pragma once

#include <lockstep/bench/strategies/figures.h>
#include <lockstep/bench/strategies/settings.h>

namespace lockstep {

/// In a rank that launch_ranks() started: joins the group, trains with `way` for a round and writes
/// the measurements to this rank's place in `figures`. Throws any error; ConfigError if the model
/// or this machine does not support the way.
void bench_strategy_rank(const BenchStrategiesSettings& settings, const StrategyWay& way,
                         SharedFigures& figures);

}  // namespace lockstep
