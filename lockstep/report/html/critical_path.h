// The way through a step that decided how long it took.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <lockstep/report/html/traced_steps.h>

namespace lockstep::html {

/// A part of the critical path: `rank` did `what` from `begin` to `end`, in microseconds.
struct PathPart {
  int rank = 0;
  std::string what{};
  double begin = 0;
  double end = 0;
};

/// What a critical path calls the time of a rank of which the trace has no phase or other span.
inline constexpr const char* kBetweenPhases = "between phases";

/// The critical path of a step: from the end of the rank that ended last back to a beginning,
/// without a gap. Where a rank waited for a reduction, the path goes on at the rank that came last;
/// where a pipeline's worker waited for a message, at the worker that sent it. The oldest part
/// first.
std::vector<PathPart> critical_path(const TracedRun& run, const TracedStep& step);

/// The microseconds of each `what` on a path, in the order in which it has them.
std::vector<std::pair<std::string, double>> path_shares(const std::vector<PathPart>& path);

/// How much of the step the path accounts for, from 0 to 1: its parts without kBetweenPhases, over
/// the time from the beginning of the path's first rank to the end of the last rank.
double accounted_share(const std::vector<PathPart>& path, const TracedStep& step);

}  // namespace lockstep::html
