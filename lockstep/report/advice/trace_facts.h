// Facts about the speed of steps, read from a trace.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep::report {

/// Means over all steps and ranks of a trace, in seconds per step.
struct TraceFacts {
  std::int64_t steps = 0;
  double step_seconds = 0;  ///< mean of rank 0, including the wait for the batch
  /// How long each rank waited for later ranks while its backward made no progress.
  std::map<int, double> waits{};
  /// How long each rank of a pipeline waited for messages that another stage had not yet sent.
  std::map<int, double> stage_waits{};
  /// The part of `waits` that was spent waiting for each rank, summed over the other ranks.
  std::map<int, double> waited_for{};
  double reductions = 0;         ///< buckets per rank and step
  double reduction_seconds = 0;  ///< mean transfer time of a bucket; concurrent buckets share it
  double reduction_bytes = 0;    ///< mean size of a bucket

  double longest_wait() const;
};

/// `text` must be the output of write_chrome_trace(); otherwise throws a std::exception that says
/// what is wrong. `ranks` must be at least 1.
TraceFacts facts_of_trace(const std::string& text, int ranks);

}  // namespace lockstep::report
