// What a trace.json says, for charts and for the way through a step that decided how long it took.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
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
  /// Of a reduction: the rank that came last, and so began the transfer.
  std::optional<int> last_rank{};
};

struct TracedRun {
  int ranks = 0;
  std::vector<TracedSpan> spans{};       ///< by their beginning
  std::vector<std::string> steps{};      ///< the names of those that all ranks have: "step 12"
  std::map<int, double> uncertainty{};   ///< of each rank's clock
};

/// Reads what write_chrome_trace() has written. DataError for another file.
TracedRun read_traced_run(const std::filesystem::path& file);

/// A part of the critical path: `rank` did `what` from `begin` to `end`.
struct PathPart {
  int rank = 0;
  std::string what{};
  double begin = 0;
  double end = 0;
};

/// The critical path of a step: from the end of the rank that ended last back to a beginning. Where a
/// rank waited for a reduction, the path goes on at the rank that came last. What lies between spans is
/// "other". The oldest part first; empty where no rank has the step.
std::vector<PathPart> critical_path(const TracedRun& run, const std::string& step);

/// waits[r][q]: microseconds of the traced steps in which rank r waited for rank q in reductions.
std::vector<std::vector<double>> waits_of(const TracedRun& run);

}  // namespace lockstep::html
