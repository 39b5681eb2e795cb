// A traced all-reduce as text.
#pragma once

#include <string>

#include <lockstep/bench/collectives/traced_run.h>

namespace lockstep::bench {

/// Shows which rank sent which piece to which rank in each step, a timeline for each rank, and
/// bytes and time of each rank next to the model's prediction. At most `columns` wide, if names
/// allow; `unicode` enables arrows and blocks.
std::string trace_text(const TracedRun& run, int columns, bool unicode);

}  // namespace lockstep::bench
