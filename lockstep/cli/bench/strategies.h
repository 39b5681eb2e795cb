// `lockstep bench step --strategy all`: every way to compute a step, each in processes of its own.
#pragma once

#include <lockstep/bench/strategies/settings.h>

namespace lockstep {

/// Measures the ways and prints the table and writes the JSON. In each round every way takes its
/// turn, beginning with another one each time, so that a machine that drifts changes all of them. A
/// way that the model or this machine cannot do is a row that says why. CommandFailure if a way
/// fails, or if none is possible.
///
/// Call it, as launch_ranks(), from the main thread while no other thread exists.
void bench_strategies(const BenchStrategiesSettings& settings);

}  // namespace lockstep
