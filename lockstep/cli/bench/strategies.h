// `lockstep bench step --strategy all`: every way to compute a step, each in separate processes.
#pragma once

#include <lockstep/bench/strategies/settings.h>

namespace lockstep::cli {

/// Measures the ways (bench/strategies/rounds.h), shows the progress on a terminal, prints the
/// table and writes the JSON. For a way that the model or this machine does not support, the row
/// says why. Throws CommandFailure if a way fails, or if none is possible.
///
/// Like launch_ranks(), it must be called from the main thread while no other thread exists.
void bench_strategies(const bench::BenchStrategiesSettings& settings);

}  // namespace lockstep::cli
