// The work of each rank of `lockstep bench comm`.
#pragma once

#include <lockstep/bench/collectives/settings.h>

namespace lockstep {

/// Joins the group and measures; rank 0 prints and writes files. Throws any error.
void bench_comm_rank(const BenchCommSettings& settings);

}  // namespace lockstep
