// The timeline of a step over all ranks, as SVG.
#pragma once

#include <string>

#include <lockstep/report/html/traced_steps.h>

namespace lockstep::html {

struct StepTimeline {
  const TracedRun& run;
  const TracedStep& step;
  int ranks = 16;  ///< maximum number, starting with rank 0
};

/// A row for each track of each rank with spans in the step: phases of the training thread, buckets
/// (with the wait for late ranks shown separately), workers and loader threads. Below the rows is a
/// legend of the colours. Each span has a title with its name and duration. Empty for a step of
/// zero length.
std::string svg_of(const StepTimeline& timeline, double width);

}  // namespace lockstep::html
