// Facts about a run's speed, read from its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/report/advice/trace_facts.h>

namespace lockstep::report {

/// Figures from `run.json` over the epochs after the first, which warms up. For a run of one epoch,
/// the figures are those of that epoch; the wait for its first batch, during which the loader
/// starts, is then excluded from the step and from all shares of it.
struct RunFacts {
  std::string recipe{};
  std::string strategy{};
  std::string loader{};
  std::string device{};
  std::string precision{};
  /// Whether the device computes faster in bfloat16 than in float32; false if that is unknown.
  bool has_bfloat16 = false;
  std::string backend{};
  int ranks = 1;
  int local_ranks = 1;  ///< on rank 0's host
  int threads_per_rank = 1;
  std::int64_t processors = 0;  ///< on rank 0's host; 0: unknown
  /// The images that a step takes on each rank, over all batches that it accumulates. The ranks of
  /// a pipeline share them.
  std::int64_t batch_per_rank = 0;
  int pipelines = 0;     ///< pipelines that share the batch; 0: each rank has images of its own
  std::string epochs{};  ///< the epochs over which figures are averaged: "epochs 2 to 10"
  double step_seconds = 0;
  // Shares of step_seconds, from 0 to 1, on rank 0:
  double data = 0;         ///< waiting for a batch other than the first of an epoch
  double first_batch = 0;  ///< waiting for the first batch of an epoch
  double compute = 0;      ///< forward, backward and optimizer
  double communication = 0;
  double stage_waits = 0;  ///< the part of `communication` spent waiting for another stage
  /// The smallest share of an epoch taken by its first batch.
  double least_first_batch = 0;
  /// Share of a step for which a rank's training thread is ready to run but has no processor.
  std::optional<double> processor_wait{};
  /// Share of the processors used by other programs, from 0 to 1.
  std::optional<double> other_programs{};
  std::optional<double> gpu_utilisation{};
  std::optional<TraceFacts> trace{};
};

/// Reads a run's record and, if it is in the run's folder, the `trace.json` next to it. `run` is
/// that folder or a file (run_place.h). Throws DataError if the record is missing, if a file was
/// not written by Lockstep, or if the run has no complete epoch.
RunFacts read_run_facts(const std::filesystem::path& run);

}  // namespace lockstep::report
