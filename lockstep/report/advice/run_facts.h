// What a run's folder tells of its speed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/report/advice/trace_facts.h>

namespace lockstep {

/// What `run.json` says of the epochs after the first, which warms up; of the first one if there is
/// no other.
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
  double step_seconds = 0;
  // Shares of that time, from 0 to 1, on rank 0:
  double data = 0;
  double compute = 0;  ///< forward, backward and optimizer
  double communication = 0;
  std::optional<double> gpu_utilisation{};
  std::optional<TraceFacts> trace{};
};

/// Reads a run's record and, where it lies in the folder of the run, `trace.json` beside it. `run`
/// is that folder or a file (run_place.h). DataError where the record is missing, where one of both
/// is not what Lockstep writes, and for a run without a whole epoch.
RunFacts read_run_facts(const std::filesystem::path& run);

}  // namespace lockstep
