// A step over all ranks, as SVG.
#pragma once

#include <string>
#include <vector>

#include <lockstep/report/html/traced_steps.h>

namespace lockstep::html {

/// A row for each track of each rank that has something of the step: phases of the training thread,
/// buckets with the wait for late ranks apart, workers and loader threads. Each span has a title with its
/// name and duration. Empty where no rank has the step.
std::string timeline_svg(const TracedRun& run, const std::string& step);

}  // namespace lockstep::html
