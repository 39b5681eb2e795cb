#include <lockstep/parallel/base/spans_of_calls.h>

#include <algorithm>
#include <chrono>

#include <lockstep/core/strings.h>

namespace lockstep::parallel {
namespace {

// The times of calls come from a processor counter, those of spans from the clock.
constexpr std::chrono::microseconds kClocksApart{2};

bool is_shown(const RecordedCall& call, const std::vector<Span>& shown) {
  return std::ranges::any_of(shown, [&](const Span& span) {
    return !span.collective.empty() && span.begin <= call.begin + kClocksApart &&
           call.end <= span.end + kClocksApart;
  });
}

// Assigns each call to the first track whose previous call has ended.
class CallTracks {
 public:
  std::string track_of(const RecordedCall& call) {
    auto end =
        std::ranges::find_if(ends_, [&](Clock::time_point before) { return before <= call.begin; });
    if (end == ends_.end()) end = ends_.insert(end, call.end);
    *end = call.end;
    const auto number = end - ends_.begin() + 1;
    return number == 1 ? "calls" : str("calls ", number);
  }

 private:
  std::vector<Clock::time_point> ends_;
};

}  // namespace

std::vector<Span> spans_of_calls(const std::vector<RecordedCall>& calls,
                                 const std::vector<Span>& shown) {
  std::vector<Span> spans;
  CallTracks tracks;
  for (const RecordedCall& call : calls) {
    if (is_shown(call, shown)) continue;
    const bool is_collective = !detail::is_message(call.call);
    spans.push_back({.name = call_name(call.call.kind),
                     .category = is_collective ? "collective" : kMessageCategory,
                     .begin = call.begin,
                     .end = call.end,
                     .track = tracks.track_of(call),
                     .arguments = {{"call", describe(call.call)}, {"group", call.group}},
                     .collective = is_collective ? str(call.group, " call ", call.number)
                                                 : str(call.group, " ", call.message)});
  }
  return spans;
}

}  // namespace lockstep::parallel
