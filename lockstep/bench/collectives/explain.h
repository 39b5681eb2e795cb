// `lockstep bench comm --explain`: shows the steps of an all-reduce.
#pragma once

#include <lockstep/bench/collectives/settings.h>
#include <lockstep/comm/group/process_group.h>

namespace lockstep::bench {

/// Collective. Measures latency and bandwidth between two ranks of the group, runs the algorithm
/// with tracing, and on rank 0 prints the median run and writes it as a picture.
void explain_rank(const BenchCommSettings& settings, ProcessGroup group);

}  // namespace lockstep::bench
