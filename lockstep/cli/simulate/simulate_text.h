// The results of `lockstep simulate`, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include <lockstep/cli/simulate/simulate_settings.h>
#include <lockstep/simulate/simulation.h>

namespace lockstep::cli {

/// The predictions for all numbers of ranks, and the what-if answers for the last one.
struct SimulateResult {
  std::vector<simulate::PredictedStep> rows;
  std::vector<simulate::WhatIf> answers;
  std::vector<std::string> extrapolations;  ///< extrapolation.h
};

SimulateResult simulate(const SimulateSettings& settings);

/// A heading, two tables in the settings' format, and a line for each extrapolation; each line ends
/// with a newline.
std::string simulate_text(const SimulateSettings& settings, const SimulateResult& result);

/// {"run": the profile (step_profile.h), "strategy", "network", "algorithm", "ranks_per_host",
/// "rows": [{"ranks", "step_ms", "interval_ms": [low, high], "efficiency", "exposed_ms",
/// "taken_ms", "straggler_ms", "algorithm", "buckets", "extrapolations": [sentence]}], "what_if":
/// the same with "name", "extrapolations": [sentence, for all rows]}.
std::string to_json(const SimulateSettings& settings, const SimulateResult& result);

}  // namespace lockstep::cli
