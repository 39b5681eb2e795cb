// A traced all-reduce as a picture.
#pragma once

#include <string>

#include <lockstep/bench/collectives/traced_run.h>

namespace lockstep {

/// A self-contained SVG, legible on light and dark screens. The upper part shows ranks as lanes and
/// steps as columns, with an arrow for each message and its piece of the tensor. The lower part
/// shows each rank's activity over time, with bytes and time next to the model's prediction.
std::string trace_svg(const TracedRun& run);

}  // namespace lockstep
