// What `lockstep bench step --strategy all` found, for people and for machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/step/rows.h>
#include <lockstep/bench/strategies/figures.h>
#include <lockstep/bench/strategies/settings.h>

namespace lockstep {

/// The rounds of one way: figures[round][rank].
struct StrategyRounds {
  StrategyWay way;
  std::vector<std::vector<RankFigures>> figures;
  std::string why_not;  ///< why this model or machine cannot do it; empty where it can
};

/// One way. All spreads are over the rounds, and a time is in milliseconds a step. Of several ranks
/// the slowest one counts for the step; phases are means over the ranks, and in a pipeline of
/// threads over the workers.
struct StrategyRow {
  StrategyWay way;
  std::string why_not;     ///< not empty: nothing below was measured
  std::string backend;     ///< "none" in one process
  int processors = 0;      ///< that the way can use: its threads, at most those of all ways
  std::int64_t steps = 0;  ///< timed steps of the last round
  Spread step_ms;
  std::optional<Spread> single_ms;    ///< of the way "single"; absent where it was not measured
  std::optional<Spread> overhead_ms;  ///< the step over that of "single", round by round
  std::optional<Spread> ratio;        ///< throughput beside that of "single", round by round
  double samples_per_second = 0;
  double processor_ms = 0;  ///< sum over the ranks
  double utilisation = 0;   ///< processor time of a step / (its wall time x processors)
  double forward_ms = 0, backward_ms = 0, communication_ms = 0, optimizer_ms = 0;
  /// Replicas on ranks: the communication of the rank that comes last, whose time is no wait for
  /// other ranks.
  std::optional<double> exposed_ms;
  /// Pipelines with a processor for each thread: the share of the workers' time in which they did
  /// not compute, 0 to 1.
  std::optional<double> bubble;
  std::int64_t peak_bytes = 0;          ///< the process with the most memory
  std::int64_t peak_growth_bytes = 0;   ///< the same over what it held before the model existed
  std::int64_t proportional_bytes = 0;  ///< sum over the processes, after the steps
  /// Pipelines of threads: what the worker with the most holds of the model, of its optimizer's
  /// state and of activations.
  std::optional<std::int64_t> device_bytes;
  /// Pipelines whose schedule splits backwards: the stages whose backward it leaves whole.
  std::vector<int> whole_backward;
  std::vector<double> rounds_ms;
};

/// What limits a way: its largest loss, and the share of the step that it takes.
struct StepLimit {
  /// "bubble", "communication", "idle" (threads that had nothing to do), or "processors": less than
  /// a twentieth of the step is lost by the others, or the ranks share processors.
  std::string what;
  double share = 0;  ///< share of the step, 0 to 1; for "processors" their utilisation
};
StepLimit limit_of(const StrategyRow& row);

/// `rounds` has a round or says why not. `single` are the rounds of the way "single", null where
/// that was not measured.
StrategyRow summarize(const BenchStrategiesSettings& settings, const StrategyRounds& rounds,
                      const StrategyRounds* single);

/// A JSON array; docs/benchmarks/strategies.md describes the rows.
std::string to_json(const BenchStrategiesSettings& settings, const std::vector<StrategyRow>& rows);

/// What is measured, the table with its heading, and what its columns mean; at most 100 columns.
std::string strategies_text(const BenchStrategiesSettings& settings,
                            const std::vector<StrategyRow>& rows);

}  // namespace lockstep
