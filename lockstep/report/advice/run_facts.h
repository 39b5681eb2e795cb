// What a run's folder tells of its speed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

/// What `trace.json` says of its steps, over all ranks.
struct TraceFacts {
  std::int64_t steps = 0;
  double step_seconds = 0;     ///< mean of rank 0's
  double arrival_seconds = 0;  ///< a rank's waiting for later ones in a step; the mean over the ranks
  std::map<int, std::int64_t> last{};  ///< how often each rank was the one that the others waited for
  double reductions = 0;               ///< buckets of a rank in a step
  double reduction_seconds = 0;        ///< the median transfer of one, without the waiting
  double reduction_bytes = 0;          ///< the mean size of one
};

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

/// Reads `run.json` in `folder` and, where it is, `trace.json`. DataError where the first is missing,
/// where one of them is not what Lockstep writes, and for a run without a whole epoch.
RunFacts read_run_facts(const std::filesystem::path& folder);

}  // namespace lockstep
