// The work of each rank of `lockstep bench comm`.
#pragma once

#include <lockstep/bench/collectives/settings.h>

namespace lockstep::bench {

/// Joins the group and takes the measurements; rank 0 prints them and writes the files. Throws on
/// any failure.
void bench_comm_rank(const BenchCommSettings& settings);

}  // namespace lockstep::bench
