// The options of `lockstep bench step --strategy all`, checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/bench/step/settings.h>
#include <lockstep/bench/strategies/ways.h>

namespace lockstep {

/// Where a model is cut into stages.
struct StageCuts {
  int stages = 0;
  std::vector<std::string> names{};  ///< the blocks that all stages but the last end with
  std::string about{};               ///< how they were chosen, one line
};

struct BenchStrategiesSettings : CommonStepSettings {
  std::string model;              ///< "mnist", "resnet18" or "resnet50"
  std::int64_t image_size = 0;    ///< pixels of a side
  StrategyWork work;              ///< what every way does
  std::vector<StrategyWay> ways;  ///< those that were asked for, in the order of strategy_ways()
  /// "balance": measured, in processes of their own, before the first way. "even": as
  /// resnet_cuts() does it. Empty for a model that is cut in one way only.
  std::string cut;
  std::vector<StageCuts> cuts{};  ///< for each number of stages that was measured
};

/// Whether --strategy asks for this comparison. That is so if it names anything but ddp and zero1,
/// which are compared in one set of ranks.
bool compares_strategies(const BenchStepArguments& arguments);

/// Checks everything that can be checked before a process exists. ConfigError names the option,
/// also one that only the other mode has, and refuses to run under a launcher.
BenchStrategiesSettings resolve_strategies(const BenchStepArguments& arguments);

}  // namespace lockstep
