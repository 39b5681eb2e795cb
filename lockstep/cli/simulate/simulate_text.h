// What `lockstep simulate` found, for people and for machines.
#pragma once

#include <string>
#include <vector>

#include <lockstep/cli/simulate/simulate_settings.h>
#include <lockstep/simulate/simulation.h>

namespace lockstep {

/// The predictions for the numbers of ranks, and the answers for the last of them.
struct SimulateResult {
  std::vector<PredictedStep> rows;
  std::vector<WhatIf> answers;
};

SimulateResult simulate(const SimulateSettings& settings);

/// A heading and two tables in the settings' format, with a newline behind each line.
std::string simulate_text(const SimulateSettings& settings, const SimulateResult& result);

/// {"run": the profile (step_profile.h), "strategy", "network", "algorithm", "ranks_per_host",
/// "rows": [{"ranks", "step_ms", "efficiency", "exposed_ms", "taken_ms", "straggler_ms",
/// "algorithm", "buckets"}], "what_if": the same with "name"}.
std::string to_json(const SimulateSettings& settings, const SimulateResult& result);

}  // namespace lockstep
