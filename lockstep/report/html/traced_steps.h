// The contents of a trace.json, for charts and for the critical path of a step.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/report/time_windows.h>

namespace lockstep::html {

/// Times are in microseconds on rank 0's clock.
struct TracedSpan {
  int rank = 0;
  std::string name{};
  std::string category{};
  std::string track{};
  double begin = 0;
  double end = 0;
  /// The rank that joined this reduction or other collective last, and thereby started its
  /// transfer.
  std::optional<int> last_rank{};
};

/// A value at one moment, such as the number of batches that are ready.
struct TracedValue {
  int rank = 0;
  std::string name{};
  double time = 0;
  double value = 0;
};

/// A step of one rank. It begins with the wait for its batch, which precedes the trace's span of
/// the step.
using StepWindow = report::TimeWindow;

struct TracedStep {
  std::string name{};                 ///< "step 12"
  std::map<int, StepWindow> ranks{};  ///< windows of all ranks of the run
};

struct TracedRun {
  int ranks = 0;
  std::vector<TracedSpan> spans{};      ///< sorted by beginning
  std::vector<TracedValue> values{};    ///< sorted by time
  std::vector<TracedStep> steps{};      ///< steps recorded by all ranks, in order
  std::map<int, double> uncertainty{};  ///< uncertainty of each rank's clock
};

/// Reads the output of write_chrome_trace(). Throws DataError if the file is anything else.
TracedRun read_traced_run(const std::filesystem::path& file);

/// The time from when the first rank begins the step until the last one ends it.
StepWindow whole_window(const TracedStep& step);

/// The windows of a rank's steps; their indices are those of TracedRun::steps. Each step must have
/// the rank.
report::TimeWindows step_windows(const TracedRun& run, int rank);

/// Maps {r, q} to the microseconds for which rank r waited for rank q in reductions and other
/// collectives, over all traced steps. Pairs without a wait are left out.
std::map<std::pair<int, int>, double> waits_of(const TracedRun& run);

/// The mean microseconds per traced step that `rank` spent in each phase of its training thread, in
/// the order of the phases; "backward" excludes "exposed communication".
std::vector<std::pair<std::string, double>> mean_phases(const TracedRun& run, int rank);

}  // namespace lockstep::html
