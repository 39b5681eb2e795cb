// The settings of `lockstep bench step --strategy all` that follow from its options.
#pragma once

#include <string>
#include <vector>

#include <lockstep/bench/strategies/settings.h>
#include <lockstep/cli/bench/step_settings.h>

namespace lockstep::cli {

/// The networks that all strategies can train.
std::vector<std::string> strategies_model_names();

/// Whether --strategy asks for this comparison: true if it names anything but ddp and zero1, which
/// are compared in one set of ranks.
bool compares_strategies(const BenchStepArguments& arguments);

/// Checks everything that can be checked before a process exists. Throws ConfigError, which names
/// the option, if a value is invalid or the option belongs to the other mode, and if a launcher
/// started this process.
bench::BenchStrategiesSettings resolve_strategies(const BenchStepArguments& arguments);

}  // namespace lockstep::cli
