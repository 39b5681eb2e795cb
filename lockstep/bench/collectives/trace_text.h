// A traced all-reduce as text.
#pragma once

#include <string>

#include <lockstep/bench/collectives/traced_run.h>

namespace lockstep::bench {

/// Shows which rank sent which piece to which rank in each step, a timeline for each rank, and each
/// rank's bytes and time next to the cost model's prediction. Lines have at most `columns`
/// characters, if names allow; `unicode` enables arrows and blocks.
std::string trace_text(const TracedRun& run, int columns, bool unicode);

}  // namespace lockstep::bench
