// The critical path of a step: the chain of work that determined its duration.
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

/// Name of a part for which the rank's trace has no span.
inline constexpr const char* kBetweenPhases = "between phases";

/// The critical path of a step, without gaps, oldest part first. It is traced back from the end of
/// the rank that ended last to the beginning of a rank's step. Where a rank waited for a reduction,
/// the path continues at the rank that joined it last; where a pipeline's worker waited for a
/// message, at the worker that sent it.
std::vector<PathPart> critical_path(const TracedRun& run, const TracedStep& step);

/// The microseconds of each `what` on a path, in order of first occurrence.
std::vector<std::pair<std::string, double>> path_shares(const std::vector<PathPart>& path);

/// The share of the step that the path explains, from 0 to 1: the time of its parts other than
/// kBetweenPhases, divided by the time from the start of the path's first rank to the end of the
/// last rank.
double accounted_share(const std::vector<PathPart>& path, const TracedStep& step);

}  // namespace lockstep::html
