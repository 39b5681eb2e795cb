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
  /// How long each rank waited for later ones without its backward proceeding meanwhile.
  std::map<int, double> waits{};
  /// How long each rank of a pipeline waited for messages that another stage had not yet sent.
  std::map<int, double> stage_waits{};
  /// How long all other ranks together waited for each rank, within `waits`.
  std::map<int, double> waited_for{};
  double reductions = 0;         ///< buckets per rank and step
  double reduction_seconds = 0;  ///< mean transfer time of a bucket; concurrent ones share the time
  double reduction_bytes = 0;    ///< mean size of a bucket

  double longest_wait() const;
};

/// `text` is the output of write_chrome_trace(); for other text, throws a std::exception that says
/// what is wrong. `ranks` is at least 1.
TraceFacts facts_of_trace(const std::string& text, int ranks);

}  // namespace lockstep::report
