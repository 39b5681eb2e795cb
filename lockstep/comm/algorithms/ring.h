// Ring: the elements are split into N parts. In the first N-1 steps (reduce-scatter) each rank
// sends a partial sum of one part to its right neighbour, which adds its own share; at the end rank
// r holds the sum of part r. In N-1 further steps (all-gather) the sums travel around the ring once
// more.
//
// Costs, for N ranks, n bytes, α per message, β per byte sent, γ per byte added: 2 (N-1) steps, in
// which
//
//   every rank  sends and receives 2 (N-1)/N n bytes, to and from its neighbours only;
//   time        2 (N-1) α + 2 (N-1)/N nβ + (N-1)/N nγ.
//
// No all-reduce can send fewer bytes per rank (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", JPDC 2009), and communication between neighbours needs
// no fast links across the network. The ring suits long messages; for short ones 2 (N-1) latencies
// are too many.
#pragma once

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep::comm {

CommSchedule ring_schedule(const ScheduleRequest& request);

}  // namespace lockstep::comm
