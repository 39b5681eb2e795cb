// All-to-all exchange: everybody sends everything to everybody, and each adds by itself, in the
// order of the ranks: so all get the same bits though nobody passes a result on.
//
// Costs, for N ranks, n bytes, α per message, β per byte sent, γ per byte added: one step, in which
//
//   every rank  sends (N-1) n and receives (N-1) n bytes;
//   time        (N-1) (α + nβ + nγ).
//
// With two ranks it is the fastest there is for short messages: one message each way, both at once.
// With more it moves N/2 times the bytes of a ring and adds everything N times. Memory for N-1
// arrivals is needed; chunks (request.chunk) bound that, at one step a chunk.
#pragma once

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep {

CommSchedule all_to_all_schedule(const ScheduleRequest& request);

}  // namespace lockstep
