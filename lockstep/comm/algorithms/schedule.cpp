#include <lockstep/comm/algorithms/schedule.h>

#include <algorithm>

#include <lockstep/comm/algorithms/all_to_all.h>
#include <lockstep/comm/algorithms/halving_doubling.h>
#include <lockstep/comm/algorithms/reduce_broadcast.h>
#include <lockstep/comm/algorithms/ring.h>
#include <lockstep/comm/algorithms/tree.h>
#include <lockstep/core/error.h>

namespace lockstep::comm {

ScheduledRange part_of(std::size_t count, int parts, int index) {
  const auto n = static_cast<std::size_t>(parts);
  const auto i = static_cast<std::size_t>(index);
  const std::size_t first = count * i / n;
  return {first, count * (i + 1) / n - first};
}

void add_send(ScheduleStep& step, int peer, ScheduledRange range) {
  if (range.count > 0) step.sends.push_back({peer, range});
}

void add_receive(ScheduleStep& step, int peer, ScheduledRange range, OnArrival then) {
  if (range.count > 0) step.receives.push_back({peer, range, then});
}

std::vector<ScheduledRange> chunks_of(const ScheduleRequest& request) {
  const std::size_t chunk = request.chunk == 0 ? request.count : request.chunk;
  std::vector<ScheduledRange> chunks;
  for (std::size_t first = 0; first < request.count; first += chunk) {
    chunks.push_back({first, std::min(chunk, request.count - first)});
  }
  return chunks;
}

CommSchedule make_schedule(Algorithm algorithm, const ScheduleRequest& request) {
  LOCKSTEP_CHECK(request.size >= 1 && request.rank >= 0 && request.rank < request.size,
                 "schedule of rank ", request.rank, " of ", request.size);
  if (request.size == 1 || request.count == 0) return {};
  switch (algorithm) {
    case Algorithm::kReduceBroadcast:
      return reduce_broadcast_schedule(request);
    case Algorithm::kAllToAll:
      return all_to_all_schedule(request);
    case Algorithm::kRing:
      return ring_schedule(request);
    case Algorithm::kHalvingDoubling:
      return halving_doubling_schedule(request);
    case Algorithm::kTree:
      return tree_schedule(request);
    case Algorithm::kAuto:
    case Algorithm::kNative:
      break;
  }
  LOCKSTEP_CHECK(false, "no schedule of algorithm ", algorithm_name(algorithm));
}

std::vector<CommSchedule> make_schedules(Algorithm algorithm, ScheduleRequest request) {
  std::vector<CommSchedule> schedules;
  for (request.rank = 0; request.rank < request.size; ++request.rank) {
    schedules.push_back(make_schedule(algorithm, request));
  }
  return schedules;
}

std::size_t elements_sent(const CommSchedule& schedule) {
  std::size_t count = 0;
  for (const ScheduleStep& step : schedule) {
    for (const ScheduledSend& send : step.sends) count += send.range.count;
  }
  return count;
}

std::size_t elements_received(const CommSchedule& schedule) {
  std::size_t count = 0;
  for (const ScheduleStep& step : schedule) {
    for (const ScheduledReceive& receive : step.receives) count += receive.range.count;
  }
  return count;
}

}  // namespace lockstep::comm
