// What each process of a way of `lockstep bench step --strategy all` does.
#pragma once

#include <lockstep/bench/strategies/figures.h>
#include <lockstep/bench/strategies/settings.h>

namespace lockstep {

/// In a rank that launch_ranks() started: joins the group, trains `way` for a round and writes what
/// it measured to this rank's place in `figures`. Throws what goes wrong; ConfigError where the
/// model or this machine cannot do it.
void bench_strategy_rank(const BenchStrategiesSettings& settings, const StrategyWay& way,
                         SharedFigures& figures);

}  // namespace lockstep
