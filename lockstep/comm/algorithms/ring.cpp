#include <lockstep/comm/algorithms/ring.h>

namespace lockstep::comm {

CommSchedule ring_schedule(const ScheduleRequest& request) {
  const int size = request.size;
  const int right = (request.rank + 1) % size;
  const int left = (request.rank - 1 + size) % size;
  // The part whose index is `back` less than this rank, modulo the number of ranks.
  const auto part = [&](int back) {
    return part_of(request.count, size, ((request.rank - back) % size + size) % size);
  };
  CommSchedule schedule;
  for (int s = 0; s < size - 1; ++s) {
    ScheduleStep step;
    add_send(step, right, part(s + 1));
    add_receive(step, left, part(s + 2), OnArrival::kReduce);
    schedule.push_back(std::move(step));
  }
  for (int s = 0; s < size - 1; ++s) {
    ScheduleStep step;
    add_send(step, right, part(s));
    add_receive(step, left, part(s + 1), OnArrival::kOverwrite);
    schedule.push_back(std::move(step));
  }
  return schedule;
}

}  // namespace lockstep::comm
