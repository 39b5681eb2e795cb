// `lockstep bench step --strategy all`: every way to compute a step, each in processes of its own.
#pragma once

#include <lockstep/cli/bench_strategies/strategy_settings.h>

namespace lockstep {

/// In each round every way takes its turn, beginning with another one each time, so that a machine
/// that drifts changes all of them. Prints the table and writes the JSON. A way that the model or
/// this machine cannot do is a row that says why; CommandFailure where one fails, or none can.
///
/// Call from the main thread while no other thread exists, as launch_ranks().
void bench_strategies(const BenchStrategiesSettings& settings);

}  // namespace lockstep
