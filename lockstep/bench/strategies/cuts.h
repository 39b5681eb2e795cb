// Where `lockstep bench step --strategy all` cuts a model into the stages of its pipelines.
#pragma once

#include <string>
#include <vector>

#include <lockstep/bench/strategies/figures.h>
#include <lockstep/bench/strategies/settings.h>

namespace lockstep::bench {

/// Writes `cuts` as a text for another process; parse_stage_cuts() reads it.
std::string note_of(const StageCuts& cuts);
StageCuts parse_stage_cuts(int stages, const std::string& note);

/// To be called in a process that launch_ranks() started. Measures how long the parts of the model
/// take for a micro-batch, and stores in place i of `notes` where to cut the model into `counts[i]`
/// stages of nearly equal duration. Uses as many threads as a worker of a pipeline has.
void balance_strategy_stages(const BenchStrategiesSettings& settings,
                             const std::vector<int>& counts, SharedPlaces<SharedNote>& notes);

}  // namespace lockstep::bench
