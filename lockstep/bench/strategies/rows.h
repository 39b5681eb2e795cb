// The results of `lockstep bench step --strategy all`, as text and as JSON.
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
  std::string why_not;  ///< why this model or machine does not support it; empty if it does
};

/// The row of one way. Spreads are over the rounds, and times in milliseconds per step. Step times
/// are those of the slowest rank; phases are means over the ranks, or in a pipeline of threads over
/// the workers.
struct StrategyRow {
  StrategyWay way;
  std::string why_not;     ///< if not empty, nothing below was measured
  std::string backend;     ///< "none" in one process
  int processors = 0;      ///< usable by the way: its threads, at most those of all ways
  std::int64_t steps = 0;  ///< timed steps of the last round
  Spread step_ms;
  std::optional<Spread> single_ms;    ///< of the way "single"; absent if not measured
  std::optional<Spread> overhead_ms;  ///< the step minus that of "single", per round
  std::optional<Spread> ratio;        ///< throughput relative to "single", per round
  double samples_per_second = 0;
  double processor_ms = 0;  ///< sum over the ranks
  double utilisation = 0;   ///< processor time of a step / (its wall time x processors)
  double forward_ms = 0, backward_ms = 0, communication_ms = 0, optimizer_ms = 0;
  /// Replicas on ranks: the communication time of the rank that comes last, which contains no wait
  /// for other ranks.
  std::optional<double> exposed_ms;
  /// Pipelines with a processor for each thread: the share of the workers' time in which they did
  /// not compute, from 0 to 1.
  std::optional<double> bubble;
  std::int64_t peak_bytes = 0;         ///< the process with the most memory
  std::int64_t peak_growth_bytes = 0;  ///< likewise, minus the memory held before the model existed
  std::int64_t proportional_bytes = 0;  ///< sum over the processes, after the steps
  /// Pipelines of threads: bytes of the model, optimizer state and activations on the worker with
  /// most.
  std::optional<std::int64_t> device_bytes;
  /// Pipelines whose schedule splits backwards: the stages whose backward is not split.
  std::vector<int> whole_backward;
  std::vector<double> rounds_ms;
};

/// The limit of a way: its largest loss, and its share of the step.
struct StepLimit {
  /// "bubble", "communication", "idle" (threads without work), or "processors": the others cost
  /// less than a twentieth of the step, or the ranks share processors.
  std::string what;
  double share = 0;  ///< share of the step, 0 to 1; for "processors" their utilisation
};
StepLimit limit_of(const StrategyRow& row);

/// `rounds` has a round or a reason why not. `single` are the rounds of the way "single", null if
/// not measured.
StrategyRow summarize(const BenchStrategiesSettings& settings, const StrategyRounds& rounds,
                      const StrategyRounds* single);

/// A JSON array; docs/benchmarks/strategies.md describes the rows.
std::string to_json(const BenchStrategiesSettings& settings, const std::vector<StrategyRow>& rows);

/// A description of the measurement, the table with its heading, and the meaning of its columns; at
/// most 100 columns.
std::string strategies_text(const BenchStrategiesSettings& settings,
                            const std::vector<StrategyRow>& rows);

}  // namespace lockstep
