// What each rank of `lockstep bench comm` does.
#pragma once

#include <lockstep/bench/collectives/settings.h>

namespace lockstep {

/// Joins the group and measures; rank 0 prints and writes files. Throws what goes wrong.
void bench_comm_rank(const BenchCommSettings& settings);

}  // namespace lockstep
