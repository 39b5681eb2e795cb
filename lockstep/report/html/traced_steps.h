// What a trace.json says, for charts and for the way through a step that decided how long it took.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::html {

/// Times are microseconds on rank 0's clock.
struct TracedSpan {
  int rank = 0;
  std::string name{};
  std::string category{};
  std::string track{};
  double begin = 0;
  double end = 0;
  /// The rank that came last to this reduction or other collective, and so began its transfer.
  std::optional<int> last_rank{};
};

/// A value at one moment, such as the number of batches that lie ready.
struct TracedValue {
  int rank = 0;
  std::string name{};
  double time = 0;
  double value = 0;
};

/// A step of one rank. It begins with the wait for its batch, which the training loop does before
/// what the trace calls the step.
struct StepWindow {
  double begin = 0;
  double end = 0;
};

struct TracedStep {
  std::string name{};                 ///< "step 12"
  std::map<int, StepWindow> ranks{};  ///< of all ranks of the run
};

struct TracedRun {
  int ranks = 0;
  std::vector<TracedSpan> spans{};      ///< by their beginning
  std::vector<TracedValue> values{};    ///< by time
  std::vector<TracedStep> steps{};      ///< those that all ranks have, in order
  std::map<int, double> uncertainty{};  ///< of each rank's clock
};

/// Reads what write_chrome_trace() has written. DataError for another file.
TracedRun read_traced_run(const std::filesystem::path& file);

/// From where the first rank begins the step to where the last one ends it.
StepWindow whole_window(const TracedStep& step);

/// By {r, q}, the microseconds of all traced steps in which rank r waited for rank q in reductions
/// and other collectives. Pairs without a wait are left out.
std::map<std::pair<int, int>, double> waits_of(const TracedRun& run);

/// The mean microseconds of a traced step that `rank` spent in each phase of its training thread,
/// in the order in which a step has them; "backward" is without "exposed communication".
std::vector<std::pair<std::string, double>> mean_phases(const TracedRun& run, int rank);

}  // namespace lockstep::html
