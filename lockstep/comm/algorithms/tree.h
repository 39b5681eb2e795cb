// Binary tree: rank r has the children 2r+1 and 2r+2. Partial sums go up to rank 0, the result goes
// down. The elements are split into C chunks that form a pipeline: while one chunk goes up, the one
// before it is a level higher or on its way down.
//
// Costs, for N ranks, H = floor(log2 N) levels below the root, n bytes, α per message, β per byte
// sent, γ per byte added: C + 2H - 1 steps, in which
//
//   every rank  sends at most n bytes up and 2n down, and receives as much the other way;
//   time        at most (C + 2H - 1) (3α + 3 (n/C) β + 2 (n/C) γ), for a rank with a parent and
//               two children. C = 1: about 4H (α + nβ) + 2H nγ, because at each level two
//               messages share the link of the rank above.
//
// Latency grows with log2 N as in halving-doubling, for any N, and each rank has at most three
// partners. However, inner ranks send 3n bytes where a ring sends 2n, and half of the ranks, the
// leaves, add nothing. (NCCL avoids this with two trees in which the leaves of one are inner ranks
// of the other: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast,
// reduction and scan", 2009.)
#pragma once

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep::comm {

CommSchedule tree_schedule(const ScheduleRequest& request);

}  // namespace lockstep::comm
