#include <lockstep/comm/algorithms/reduce_broadcast.h>

namespace lockstep::comm {

// Each sender has its own step, so that rank 0 needs memory for only one incoming tensor.
CommSchedule reduce_broadcast_schedule(const ScheduleRequest& request) {
  const ScheduledRange all{0, request.count};
  CommSchedule schedule(static_cast<std::size_t>(request.size));
  ScheduleStep& broadcast = schedule.back();
  for (int rank = 1; rank < request.size; ++rank) {
    ScheduleStep& step = schedule[static_cast<std::size_t>(rank - 1)];
    if (request.rank == 0) {
      add_receive(step, rank, all, OnArrival::kReduce);
      add_send(broadcast, rank, all);
    } else if (request.rank == rank) {
      add_send(step, 0, all);
      add_receive(broadcast, 0, all, OnArrival::kOverwrite);
    }
  }
  return schedule;
}

}  // namespace lockstep::comm
