// Reduce-then-broadcast: all ranks send everything to rank 0, which adds in rank order and sends
// the sum back. This is the most obvious algorithm, and the reference for the others: it adds in
// the order of a plain loop.
//
// Costs, for N ranks, n bytes, α per message, β per byte sent, γ per byte added: N steps, in which
//
//   rank 0      receives (N-1) n and sends (N-1) n bytes, one message after the other;
//   others      send n and receive n bytes;
//   time        2 (N-1) (α + nβ) + (N-1) nγ.
//
// Rank 0's link is the bottleneck: time grows with N while all other links idle. Suitable only for
// few ranks and few bytes.
#pragma once

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep::comm {

CommSchedule reduce_broadcast_schedule(const ScheduleRequest& request);

}  // namespace lockstep::comm
