// The rounds of `lockstep bench step --strategy all`: every way, each time in new processes.
//
// Like launch_ranks(), which they call, both functions must be called from the main thread while no
// other thread exists.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <lockstep/bench/strategies/rows.h>
#include <lockstep/bench/strategies/settings.h>
#include <lockstep/launch/launcher.h>

namespace lockstep::bench {

/// If settings.cut is "balance", measures where to cut the model for each number of stages of the
/// ways, and adds the cuts to `settings`. This happens in another process, so that the calling one
/// has no LibTorch threads when it forks. If the result is not ok(), nothing was added.
LaunchResult add_balanced_cuts(BenchStrategiesSettings& settings);

struct MeasuredStrategies {
  std::vector<StrategyRounds> ways{};  ///< in the order of the settings
  /// If processes failed and thereby ended the measurement: how the first of them ended. Otherwise
  /// ok().
  LaunchResult failure{};
};

/// Measures every way once in each round. Each round starts with a different way, so that drift of
/// the machine affects all of them. A way that the model or this machine does not support is left
/// out from then on, and StrategyRounds says why. Calls `begins` before each measurement, with the
/// round (from 0) and the name of the way.
MeasuredStrategies measure_strategies(
    const BenchStrategiesSettings& settings,
    const std::function<void(int round, const std::string& way)>& begins = {});

}  // namespace lockstep::bench
