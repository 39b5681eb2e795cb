// The results of `lockstep bench step`, as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/step/settings.h>

namespace lockstep::bench {

/// Times of one variant or baseline, on one rank, in one round.
struct StepRound {
  double step_ms = 0;  ///< median of the round's steps
  double cpu_ms = 0;   ///< mean time of all threads of the process, user and system
  /// For each step, how long backward waited for communication at its end; empty if unknown.
  std::vector<double> waited_ms;
};

/// times[rank][round] of one variant or baseline.
using StepRounds = std::vector<std::vector<StepRound>>;

/// Median and quartiles of a value over the rounds.
struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};
/// `values` must not be empty.
Spread spread_of(const std::vector<double>& values);

struct BenchStepRow {
  std::string model;
  StepVariant variant;
  std::string backend;
  int ranks = 0;
  int threads_per_rank = 0;
  std::int64_t batch_per_rank = 0;
  std::string precision;
  std::string optimizer;
  bool set_to_none = false;
  int rounds = 0;
  std::int64_t steps = 0;  ///< per round
  /// Maximum over the ranks, including the replicas of all variants.
  std::int64_t peak_rss_bytes = 0;
  /// Maximum over the ranks of the proportional set size (PSS) at the end.
  std::int64_t proportional_bytes = 0;

  /// A round's step time is that of its slowest rank; differences are taken within one round.
  Spread step_ms;
  std::optional<Spread> step_ms_single;  ///< time of independent processes
  std::optional<Spread> overhead_ms;     ///< step_ms minus step_ms_single
  /// The time that ranks lose if they only wait for each other once per step: their step time
  /// minus step_ms_single.
  std::optional<Spread> in_step_overhead_ms;
  std::optional<Spread> over_in_step_ms;  ///< what communication adds to in_step_overhead_ms
  /// How long backward waits at its end: the shortest wait of a rank (it arrives last, so this is
  /// only communication) and the longest (it also waits for the other ranks).
  std::optional<Spread> exposed_ms, waited_ms;
  Spread cpu_ms;  ///< time of the rank with the most
  std::optional<Spread> cpu_ms_single;

  /// Step times of each round, for comparing rows with each other.
  std::vector<double> rounds_ms, single_rounds_ms, in_step_rounds_ms;
};

/// Fills in the figures of `row` from the times of its variant and of its two baselines, which are
/// null if the variant ran alone.
BenchStepRow summarize(BenchStepRow row, const StepRounds& variant, const StepRounds* single,
                       const StepRounds* in_step);

/// A JSON array of {"model", "strategy", "backend", "ranks", "threads_per_rank", "batch_per_rank",
/// "precision", "step_ms", "step_ms_single", "overhead_ms", ...}; docs/benchmarks/ddp.md lists the
/// others. Unmeasured values are null.
std::string to_json(const std::vector<BenchStepRow>& rows);

/// The heading and a row of the table, without line ends.
std::string bench_step_heading();
std::string table_line(const BenchStepRow& row);

}  // namespace lockstep::bench
