// What a run's folder tells of its speed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/report/advice/trace_facts.h>

namespace lockstep {

/// What `run.json` says of the epochs after the first, which warms up. A run of one epoch has only
/// that one: the wait for its first batch, in which the loader starts, is then left out of the
/// step.
struct RunFacts {
  std::string recipe{};
  std::string strategy{};
  std::string loader{};
  std::string device{};
  std::string backend{};
  int ranks = 1;
  int local_ranks = 1;  ///< on rank 0's host
  int threads_per_rank = 1;
  std::int64_t processors = 0;  ///< of rank 0's host; 0: not known
  std::int64_t batch_per_rank = 0;
  std::string epochs{};  ///< whose mean the figures are: "epochs 2 to 10"
  double step_seconds = 0;
  // Shares of that time, from 0 to 1, on rank 0:
  double data = 0;         ///< waiting for a batch, the first one of an epoch left out
  double first_batch = 0;  ///< waiting for the first batch of an epoch
  double compute = 0;      ///< forward, backward and optimizer
  double communication = 0;
  double stage_waits = 0;  ///< the part of `communication` in which it waits for another stage
  /// The least share of an epoch that its first batch takes.
  double least_first_batch = 0;
  /// For how much of a step a rank's training thread is ready to run and has no processor.
  std::optional<double> processor_wait{};
  /// How much of the processors other programs use, from 0 to 1.
  std::optional<double> other_programs{};
  std::optional<double> gpu_utilisation{};
  std::optional<TraceFacts> trace{};
};

/// Reads a run's record and, where it lies in the folder of the run, `trace.json` beside it. `run`
/// is that folder or a file (run_place.h). DataError where the record is missing, where one of both
/// is not what Lockstep writes, and for a run without a whole epoch.
RunFacts read_run_facts(const std::filesystem::path& run);

}  // namespace lockstep
