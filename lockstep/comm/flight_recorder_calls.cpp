#include <algorithm>

#include <lockstep/comm/flight_recorder_parts.h>

namespace lockstep {
namespace {

// The moment of a counter of the processor: on the line through two moments that both clocks know.
class TickLine {
 public:
  explicit TickLine(const flight::Moment& first) : first_(first) {
    const flight::Moment last = flight::now();
    if (last.ticks > first.ticks) {
      per_tick_ = static_cast<double>((last.time - first.time).count()) /
                  static_cast<double>(last.ticks - first.ticks);
    }
  }

  Clock::time_point at(std::uint64_t ticks) const {
    const double passed = static_cast<double>(ticks - first_.ticks) * per_tick_;
    return first_.time + Clock::duration(static_cast<Clock::rep>(passed));
  }

 private:
  const flight::Moment first_;
  double per_tick_ = 0;
};

}  // namespace

std::vector<RecordedCall> FlightRecorder::completed_since(Clock::time_point from) const {
  const TickLine line(first_);
  const std::scoped_lock lock(groups_mutex_);
  std::vector<RecordedCall> calls;
  for (const Snapshot& each : snapshot()) {
    const auto group = groups_.find(each.record.group_id);
    // The time of one that ends just now is not there yet.
    if (group == groups_.end() || each.state != flight::kCompleted || each.ended == 0) continue;
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
