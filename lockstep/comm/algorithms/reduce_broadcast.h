// Reduce-then-broadcast: everybody sends everything to rank 0, which adds in the order of the ranks
// and sends the sum back. The first thing one thinks of, and the oracle for the others: its
// additions are those of a plain loop.
//
// Costs, for N ranks, n bytes, α per message, β per byte sent, γ per byte added: N steps, in which
//
//   rank 0      receives (N-1) n and sends (N-1) n bytes, one message after the other;
//   others      send n and receive n bytes;
//   time        2 (N-1) (α + nβ) + (N-1) nγ.
//
// The wire of rank 0 is the bottleneck: time grows with N while all other wires idle. Right for few
// ranks and few bytes only.
#pragma once

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep {

CommSchedule reduce_broadcast_schedule(const ScheduleRequest& request);

}  // namespace lockstep
