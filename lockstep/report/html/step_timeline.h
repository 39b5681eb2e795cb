// A step over all ranks, as SVG.
#pragma once

#include <string>

#include <lockstep/report/html/traced_steps.h>

namespace lockstep::html {

struct StepTimeline {
  const TracedRun& run;
  const TracedStep& step;
  int ranks = 16;  ///< at most: those from rank 0 on
};

/// A row for each track of each rank that has something of the step: phases of the training thread,
/// buckets with the wait for late ranks apart, workers and loader threads; below them, what the
/// colours mean. Each span has a title with its name and duration. Empty for a step without a
/// length.
std::string svg_of(const StepTimeline& timeline, double width);

}  // namespace lockstep::html
