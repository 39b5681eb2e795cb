#include <lockstep/report/advice/trace_facts.h>

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/report/time_windows.h>
#include <lockstep/report/waited_rank.h>

namespace lockstep::report {
namespace {

using TraceEvent = nlohmann::json;

constexpr double kMicro = 1e-6;
constexpr const char* kReceive = "recv";  // a message, by the name that call_name() gives it

// In microseconds.
using Intervals = std::vector<TimeWindow>;
using IntervalsOfRanks = std::map<int, Intervals>;

TimeWindow interval_of(const TraceEvent& event) {
  const double begin = event.at("ts").get<double>();
  return {.begin = begin, .end = begin + event.at("dur").get<double>()};
}

// The complete events that satisfy `is_one`.
template <class IsOne>
IntervalsOfRanks intervals_of(const TraceEvent& trace, const IsOne& is_one) {
  IntervalsOfRanks found;
  for (const TraceEvent& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || !is_one(event)) continue;
    found[event.at("pid").get<int>()].push_back(interval_of(event));
  }
  return found;
}

// The total time covered by the intervals.
double covered_length(Intervals intervals) {
  std::ranges::sort(intervals, {}, &TimeWindow::begin);
  double length = 0;
  double end = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const double begin = i == 0 ? intervals[i].begin : std::max(intervals[i].begin, end);
    length += std::max(intervals[i].end - begin, 0.0);
    end = i == 0 ? intervals[i].end : std::max(intervals[i].end, end);
  }
  return length;
}

bool is_reduction(const TraceEvent& event) {
  return event.at("cat") != "arrival" && event.at("args").contains("bytes");
}

// Ranks also wait for each other between steps: for an evaluation, or for a checkpoint written by
// one of them. In a step, the wait for a bucket costs only what backward does not hide; other
// collectives block where they are called.
class Waits {
 public:
  explicit Waits(const TraceEvent& trace)
      : steps_(windows_of(intervals_of(
            trace, [](const TraceEvent& event) { return event.at("cat") == "step"; }))),
        exposed_(windows_of(intervals_of(trace, [](const TraceEvent& event) {
          return event.at("name") == "exposed communication";
        }))) {}

  double microseconds(const TraceEvent& event) {
    const int rank = event.at("pid").get<int>();
    const TimeWindow wait = interval_of(event);
    if (event.at("name").get<std::string>().starts_with("reduction")) {
      return exposed_[rank].length_within(wait.begin, wait.end);
    }
    return steps_[rank].length_within(wait.begin, wait.end);
  }

  // The part of rank 0's waits for batches that lies before its steps. The wait for the first batch
  // of an epoch has another name.
  double before_steps(const TraceEvent& trace) {
    const auto waits = intervals_of(
        trace, [](const TraceEvent& event) { return event.at("name") == "wait for data"; });
    const auto found = waits.find(0);
    if (found == waits.end()) return 0;
    double length = 0;
    for (const TimeWindow& each : found->second) {
      length += each.end - each.begin - steps_[0].length_within(each.begin, each.end);
    }
    return length;
  }

 private:
  using WindowsOfRanks = std::map<int, TimeWindows>;

  static WindowsOfRanks windows_of(const IntervalsOfRanks& intervals) {
    WindowsOfRanks windows;
    for (const auto& [rank, each] : intervals) windows.emplace(rank, TimeWindows(each));
    return windows;
  }

  WindowsOfRanks steps_;
  WindowsOfRanks exposed_;
};

void add_reductions(const TraceEvent& trace, double steps_of_all, TraceFacts& facts) {
  double bytes = 0;
  double count = 0;
  for (const TraceEvent& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || !is_reduction(event)) continue;
    bytes += std::stod(event.at("args").at("bytes").get<std::string>());
    ++count;
  }
  if (count == 0) return;
  double microseconds = 0;
  for (const auto& [rank, transfers] : intervals_of(trace, is_reduction)) {
    microseconds += covered_length(transfers);
  }
  facts.reductions = count / steps_of_all;
  facts.reduction_seconds = kMicro * microseconds / count;
  facts.reduction_bytes = bytes / count;
}

}  // namespace

double TraceFacts::longest_wait() const {
  double longest = 0;
  for (const auto& [rank, seconds] : waits) longest = std::max(longest, seconds);
  return longest;
}

TraceFacts facts_of_trace(const std::string& text, int ranks) {
  const TraceEvent trace = TraceEvent::parse(text);
  TraceFacts facts;
  Waits waits(trace);
  for (const TraceEvent& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int rank = event.at("pid").get<int>();
    if (event.at("cat") == "step" && rank == 0) {
      ++facts.steps;
      facts.step_seconds += kMicro * event.at("dur").get<double>();
    } else if (event.at("cat") == "arrival") {
      const double seconds = kMicro * waits.microseconds(event);
      const std::string name = event.at("name").get<std::string>();
      const bool is_of_stage = name.starts_with(kReceive);
      (is_of_stage ? facts.stage_waits : facts.waits)[rank] += seconds;
      const auto late = is_of_stage ? std::nullopt : rank_waited_for(name);
      if (late) facts.waited_for[*late] += seconds;
    }
  }
  if (facts.steps == 0) return {};
  const auto steps = static_cast<double>(facts.steps);
  facts.step_seconds = (facts.step_seconds + kMicro * waits.before_steps(trace)) / steps;
  for (auto& [rank, seconds] : facts.waits) seconds /= steps;
  for (auto& [rank, seconds] : facts.waited_for) seconds /= steps;
  for (auto& [rank, seconds] : facts.stage_waits) seconds /= steps;
  add_reductions(trace, steps * ranks, facts);
  return facts;
}

}  // namespace lockstep::report
