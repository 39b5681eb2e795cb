// What `lockstep bench step --strategy all` measures: its checked options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/bench/step/settings.h>
#include <lockstep/bench/strategies/ways.h>

namespace lockstep::bench {

/// The cuts that divide a model into stages.
struct StageCuts {
  int stages = 0;
  std::vector<std::string> names{};  ///< the last block of every stage except the last
  std::string about{};               ///< how they were chosen, in one line
};

struct BenchStrategiesSettings : CommonStepSettings {
  std::string model;              ///< "mnist", "resnet18" or "resnet50"
  std::int64_t image_size = 0;    ///< side of the images in pixels
  StrategyWork work;              ///< common to all ways
  std::vector<StrategyWay> ways;  ///< the requested ways, in the order of strategy_ways()
  /// "balance": measured in separate processes before the first way. "even": chosen by
  /// resnet_cuts(). Empty if the model can be cut in only one way.
  std::string cut;
  std::vector<StageCuts> cuts{};  ///< for each measured number of stages
};

}  // namespace lockstep::bench
