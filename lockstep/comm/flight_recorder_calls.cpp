#include <algorithm>

#include <lockstep/comm/flight_recorder_parts.h>

namespace lockstep {
namespace {

// The moment of a counter of the processor: on the line through two moments that both clocks know.
class TickLine {
 public:
  TickLine(std::uint64_t first_ticks, Clock::time_point first)
      : first_ticks_(first_ticks), first_(first) {
    const std::uint64_t ticks = flight::ticks();
    const Clock::duration passed = Clock::now() - first;
    if (ticks > first_ticks) {
      per_tick_ = static_cast<double>(passed.count()) / static_cast<double>(ticks - first_ticks);
    }
  }

  Clock::time_point at(std::uint64_t ticks) const {
    const double passed = static_cast<double>(ticks - first_ticks_) * per_tick_;
    return first_ + Clock::duration(static_cast<Clock::rep>(passed));
  }

 private:
  const std::uint64_t first_ticks_;
  const Clock::time_point first_;
  double per_tick_ = 0;
};

}  // namespace

std::vector<RecordedCall> FlightRecorder::completed_since(Clock::time_point from) const {
  const TickLine line(first_ticks_, first_time_);
  const std::scoped_lock lock(groups_mutex_);
  std::vector<RecordedCall> calls;
  for (const Snapshot& each : snapshot()) {
    const auto group = groups_.find(each.record.group_id);
    if (group == groups_.end() || each.state != flight::kCompleted) continue;
    const Clock::time_point end = line.at(each.ended);
    if (end <= from) continue;
    calls.push_back({.group = group->second->name,
                     .call = each.record.call,
                     .number = each.record.sequence,
                     .begin = line.at(each.created),
                     .end = end});
  }
  std::ranges::stable_sort(calls, {}, &RecordedCall::begin);
  return calls;
}

}  // namespace lockstep
