// What a trace tells of the speed of its steps.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

/// Over all steps and ranks of a trace. Seconds are those of a step.
struct TraceFacts {
  std::int64_t steps = 0;
  double step_seconds = 0;  ///< mean of rank 0's, the wait for the step's batch included
  /// How long each rank waited for later ones, as far as its backward did not go on meanwhile.
  std::map<int, double> waits{};
  /// How long each rank of a pipeline waited for messages that another stage had not sent yet.
  std::map<int, double> stage_waits{};
  /// How long each rank was waited for in `waits`, by all others together.
  std::map<int, double> waited_for{};
  double reductions = 0;         ///< buckets of a rank in a step
  double reduction_seconds = 0;  ///< mean transfer of one; of several at the same time, its share
  double reduction_bytes = 0;    ///< the mean size of one

  double longest_wait() const;
};

/// `text` is what write_chrome_trace() has written; for another one a std::exception says what is
/// wrong. `ranks` is at least 1.
TraceFacts facts_of_trace(const std::string& text, int ranks);

}  // namespace lockstep
