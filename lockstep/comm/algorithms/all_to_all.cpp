#include <lockstep/comm/algorithms/all_to_all.h>

namespace lockstep::comm {

// Each rank starts with its neighbour r + 1, so that at any time every rank receives from one peer.
CommSchedule all_to_all_schedule(const ScheduleRequest& request) {
  CommSchedule schedule;
  for (const ScheduledRange& chunk : chunks_of(request)) {
    ScheduleStep step;
    for (int distance = 1; distance < request.size; ++distance) {
      add_send(step, (request.rank + distance) % request.size, chunk);
      add_receive(step, (request.rank - distance + request.size) % request.size, chunk,
                  OnArrival::kReduce);
    }
    schedule.push_back(std::move(step));
  }
  return schedule;
}

}  // namespace lockstep::comm
