// A traced all-reduce, drawn with letters.
#pragma once

#include <string>

#include <lockstep/bench/collectives/traced_run.h>

namespace lockstep {

/// Who sent which piece to whom in each step; a line of time for each rank; bytes and time of each
/// rank beside the model's prediction. `columns` of text wide at most, where names allow; `unicode`
/// draws with arrows and blocks.
std::string trace_text(const TracedRun& run, int columns, bool unicode);

}  // namespace lockstep
