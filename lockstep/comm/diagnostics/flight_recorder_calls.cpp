#include <algorithm>

#include <lockstep/comm/diagnostics/flight_recorder_parts.h>
#include <lockstep/core/strings.h>

namespace lockstep::comm {
namespace {

// Converts processor counter values to times, by the straight line through two moments at which
// both clocks were read.
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

// Formats a message as "0 to 3 message 17", with the ranks' numbers in the group.
std::string FlightRecorder::message_name(const Group& group, const Record& record) const {
  const auto own = std::ranges::find(group.world_ranks, rank_) - group.world_ranks.begin();
  const std::int64_t peer = record.call.root;
  const bool sends = record.call.kind == CallKind::kSend;
  return str(sends ? own : peer, " to ", sends ? peer : own, " message ", record.message);
}

std::vector<RecordedCall> FlightRecorder::completed_since(Clock::time_point from) const {
  const TickLine line(first_);
  const std::scoped_lock lock(groups_mutex_);
  std::vector<RecordedCall> calls;
  for (const Snapshot& each : snapshot()) {
    const auto group = groups_.find(each.record.group_id);
    // An operation that is just ending may not have a time yet.
    if (group == groups_.end() || each.state != flight::kCompleted || each.ended == 0) continue;
    const Clock::time_point end = line.at(each.ended);
    if (end <= from) continue;
    const Record& record = each.record;
    calls.push_back(
        {.group = group->second->name,
         .call = each.record.call,
         .number = each.record.sequence,
         .message = detail::is_message(record.call) ? message_name(*group->second, record) : "",
         .begin = line.at(each.created),
         .end = end});
  }
  std::ranges::stable_sort(calls, {}, &RecordedCall::begin);
  return calls;
}

}  // namespace lockstep::comm
