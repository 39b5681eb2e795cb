// The results of `lockstep bench step --strategy all`, also as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/step/rows.h>
#include <lockstep/bench/strategies/figures.h>
#include <lockstep/bench/strategies/settings.h>

namespace lockstep::bench {

/// What was measured for one way (a strategy with its options, see ways.h).
struct StrategyRounds {
  StrategyWay way;
  std::vector<std::vector<RankFigures>> figures;  ///< figures[round][rank]
  std::string why_not;  ///< why this model or machine does not support the way; otherwise empty
};

/// The row of one way. Times are in milliseconds per step; a Spread is over the rounds, and other
/// numbers are medians over the rounds. The step time is that of the slowest rank. The times of the
/// phases (forward, backward, communication, optimizer) are means over the ranks, or over the
/// workers of a pipeline of threads.
struct StrategyRow {
  StrategyWay way;
  std::string why_not;  ///< if not empty, the fields below have no meaning
  std::string backend;  ///< "none" in one process
  /// Processors that the way can use: its number of threads, but no more than
  /// StrategyWork::threads.
  int processors = 0;
  std::int64_t steps = 0;  ///< timed steps of the last round
  Spread step_ms;
  std::optional<Spread> single_ms;    ///< step of the way "single"; absent if not measured
  std::optional<Spread> overhead_ms;  ///< per round, the step time minus that of "single"
  std::optional<Spread> ratio;        ///< per round, the throughput relative to "single"
  double samples_per_second = 0;
  double processor_ms = 0;  ///< processor time of a step, sum over the ranks
  double utilisation = 0;   ///< processor time of a step / (its wall time x processors)
  double forward_ms = 0, backward_ms = 0, communication_ms = 0, optimizer_ms = 0;
  /// Only for replicas on ranks: the smallest communication time of a rank. It belongs to the rank
  /// that arrives last, and so includes no wait for other ranks.
  std::optional<double> exposed_ms;
  /// Only for pipelines with a processor for each thread: the share of the workers' time in which
  /// they did not compute, from 0 to 1.
  std::optional<double> bubble;
  std::int64_t peak_bytes = 0;         ///< peak memory of the process that used the most
  std::int64_t peak_growth_bytes = 0;  ///< likewise, minus the memory held before the model existed
  /// Proportional set sizes (PSS) after the steps, summed over the processes.
  std::int64_t proportional_bytes = 0;
  /// Only for pipelines of threads: bytes of the model, optimizer state and activations on the
  /// worker that has the most of them.
  std::optional<std::int64_t> device_bytes;
  /// Only for pipelines whose schedule splits each backward: the stages that compute their backward
  /// as a whole.
  std::vector<int> whole_backward;
  std::vector<double> rounds_ms;
};

/// What limits the speed of a way.
struct StepLimit {
  /// "bubble" for a pipeline, "communication" for replicas on ranks, "idle" (threads without work)
  /// for others. "processors" if this lost time is less than 5% of the step, or if there are fewer
  /// processors than threads.
  std::string what;
  /// The lost time as a share of the step, from 0 to 1; for "processors", their utilisation.
  double share = 0;
};
StepLimit limit_of(const StrategyRow& row);

/// Makes the row of one way. `rounds` must have at least one round, or say why there is none.
/// `single` holds the rounds of the way "single", or is null if that was not measured.
StrategyRow summarize(const BenchStrategiesSettings& settings, const StrategyRounds& rounds,
                      const StrategyRounds* single);
/// Makes the rows of all ways, compared with the way "single" if it is among them and was measured.
std::vector<StrategyRow> summarize(const BenchStrategiesSettings& settings,
                                   const std::vector<StrategyRounds>& ways);

/// Returns the rows as a JSON array, in the format that docs/benchmarks/strategies.md describes.
std::string to_json(const BenchStrategiesSettings& settings, const std::vector<StrategyRow>& rows);

/// Returns a description of the measurement, the table with its heading, and the meaning of its
/// columns, in lines of at most 100 characters.
std::string strategies_text(const BenchStrategiesSettings& settings,
                            const std::vector<StrategyRow>& rows);

}  // namespace lockstep::bench
