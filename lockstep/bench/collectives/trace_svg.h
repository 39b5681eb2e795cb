// Draws a traced all-reduce.
#pragma once

#include <string>

#include <lockstep/bench/collectives/traced_run.h>

namespace lockstep::bench {

/// Returns a self-contained SVG, legible on light and dark backgrounds. The upper part shows ranks
/// as lanes and steps as columns, with an arrow for each message that names the piece of the tensor
/// it carries. The lower part shows each rank's activity over time, and compares the measured bytes
/// and time with the cost model's prediction.
std::string trace_svg(const TracedRun& run);

}  // namespace lockstep::bench
