// What `lockstep bench step` found, for people and for machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/bench/step/settings.h>

namespace lockstep {

/// Of one way to train, on one rank, in one round.
struct StepRound {
  double step_ms = 0;  ///< median of the round's steps
  double cpu_ms = 0;   ///< mean time of all threads of the process, user and system
  /// Of each step: what backward waited for communication at its end; empty where that is not
  /// known.
  std::vector<double> waited_ms;
};

/// times[rank][round] of one way.
using StepRounds = std::vector<std::vector<StepRound>>;

/// A value of each round: its median and quartiles.
struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};
/// Not of nothing.
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
  std::int64_t steps = 0;               ///< of a round
  std::int64_t peak_rss_bytes = 0;      ///< of the rank with the most, with all ways' replicas
  std::int64_t proportional_bytes = 0;  ///< the same at the end, memory that ranks share divided

  /// A round's step is that of its slower rank, and differences are those of one round.
  Spread step_ms;
  std::optional<Spread> step_ms_single;  ///< processes that do not know of each other
  std::optional<Spread> overhead_ms;     ///< the step's over that
  /// What ranks lose that only wait for each other once a step, over step_ms_single.
  std::optional<Spread> in_step_overhead_ms;
  std::optional<Spread> over_in_step_ms;  ///< what communication costs beside
  /// A step's wait on the rank that comes last, for communication alone, and on the one that comes
  /// first, which waits for the others, too.
  std::optional<Spread> exposed_ms, waited_ms;
  Spread cpu_ms;  ///< of the rank with the most
  std::optional<Spread> cpu_ms_single;

  /// Of each round, to compare rows with each other.
  std::vector<double> rounds_ms, single_rounds_ms, in_step_rounds_ms;
};

/// Fills the figures of `row` from the times of its variant and, unless it ran alone, of the two
/// ways that it is compared with.
BenchStepRow summarize(BenchStepRow row, const StepRounds& variant, const StepRounds* single,
                       const StepRounds* in_step);

/// A JSON array of {"model", "strategy", "backend", "ranks", "threads_per_rank", "batch_per_rank",
/// "precision", "step_ms", "step_ms_single", "overhead_ms", ...}; docs/benchmarks/ddp.md has the
/// others. What was not measured is null.
std::string to_json(const std::vector<BenchStepRow>& rows);

/// The lines of a table, its heading and each row, without their ends.
std::string bench_step_heading();
std::string table_line(const BenchStepRow& row);

}  // namespace lockstep
