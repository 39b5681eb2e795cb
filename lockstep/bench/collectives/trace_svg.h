// A traced all-reduce as a picture.
#pragma once

#include <string>

#include <lockstep/bench/collectives/traced_run.h>

namespace lockstep {

/// An SVG that needs nothing else and reads on light and dark screens: above, ranks as lanes and
/// steps as columns, an arrow for each message with its piece of the tensor; below, what each rank
/// did when, with bytes and time beside the model's prediction.
std::string trace_svg(const TracedRun& run);

}  // namespace lockstep
