// All-to-all exchange: every rank sends its whole tensor to every other rank, and each rank reduces
// in rank order. All ranks get bitwise equal results although no result is passed on.
//
// Costs, for N ranks, n bytes, α per message, β per byte sent, γ per byte added: one step, in which
//
//   every rank  sends (N-1) n and receives (N-1) n bytes;
//   time        (N-1) (α + nβ + nγ).
//
// With two ranks this is the fastest algorithm for short messages: one message in each direction,
// both at once. With more ranks it moves N/2 times the bytes of a ring and adds everything N times.
// It needs memory for N-1 incoming tensors; chunks (request.chunk) limit that memory, at the cost
// of one step per chunk.
#pragma once

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep::comm {

CommSchedule all_to_all_schedule(const ScheduleRequest& request);

}  // namespace lockstep::comm
