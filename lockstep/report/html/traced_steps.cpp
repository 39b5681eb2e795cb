#include <lockstep/report/html/traced_steps.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
#include <string_view>
#include <tuple>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>

namespace lockstep::html {
namespace {

using TraceJson = nlohmann::json;
using Place = std::tuple<int, int, double>;  // process, thread, time

constexpr const char* kStep = "step";
constexpr const char* kExposed = "exposed communication";
constexpr const char* kTraining = "training";
constexpr double kNear = 1;  // microseconds

TracedRun run_of(const TraceJson& trace) {
  TracedRun run;
  std::map<std::pair<int, int>, std::string> tracks;
  std::map<int, int> last_ranks;  // by the number of the collective
  std::map<Place, int> collectives;
  for (const TraceJson& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph").get<std::string>();
    const int rank = event.at("pid").get<int>();
    const int track = event.at("tid").get<int>();
    run.ranks = std::max(run.ranks, rank + 1);
    if (phase == "M" && event.at("name") == "thread_name") {
      tracks[{rank, track}] = event.at("args").at("name").get<std::string>();
    } else if (phase == "s" || phase == "f") {
      const int number = event.at("id").get<int>();
      if (phase == "s") last_ranks[number] = rank;
      collectives[{rank, track, event.at("ts").get<double>()}] = number;
    }
  }
  for (const TraceJson& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int rank = event.at("pid").get<int>();
    const int track = event.at("tid").get<int>();
    const double begin = event.at("ts").get<double>();
    TracedSpan span{.rank = rank,
                    .name = event.at("name").get<std::string>(),
                    .category = event.at("cat").get<std::string>(),
                    .track = tracks[{rank, track}],
                    .begin = begin,
                    .end = begin + event.at("dur").get<double>()};
    const auto collective = collectives.find({rank, track, begin});
    if (span.category == "communication" && collective != collectives.end()) {
      const auto last = last_ranks.find(collective->second);
      if (last != last_ranks.end()) span.last_rank = last->second;
    }
    run.spans.push_back(std::move(span));
  }
  std::ranges::stable_sort(run.spans, {}, &TracedSpan::begin);
  std::map<std::string, std::set<int>> steps;
  for (const TracedSpan& span : run.spans) {
    if (span.category == kStep && steps[span.name].insert(span.rank).second &&
        steps[span.name].size() == static_cast<std::size_t>(run.ranks)) {
      run.steps.push_back(span.name);
    }
  }
  for (const TraceJson& clock : trace.at("otherData").at("clocks")) {
    run.uncertainty[clock.at("rank").get<int>()] = clock.at("uncertainty_us").get<double>();
  }
  return run;
}

// What one rank did in a step, for the way back through it.
class RankStep {
 public:
  RankStep(const TracedRun& run, int rank, const TracedSpan& step) : step_(step) {
    for (const TracedSpan& span : run.spans) {
      if (span.rank != rank || span.end <= step.begin || span.begin >= step.end) continue;
      if (span.name == kExposed) exposed_.push_back(&span);
      if (span.category == "phase" && span.track == kTraining) phases_.push_back(&span);
      if (span.last_rank) transfers_.push_back(&span);
    }
  }

  double begin() const { return step_.begin; }
  double end() const { return step_.end; }

  // The wait for a reduction that goes on just before `time`.
  const TracedSpan* exposed_at(double time) const { return at(exposed_, time); }
  const TracedSpan* phase_at(double time) const { return at(phases_, time); }
  // The transfer whose end a wait until `time` that began at `begin` was for: the last one.
  const TracedSpan* transfer_before(double begin, double time) const {
    const TracedSpan* last = nullptr;
    for (const TracedSpan* span : transfers_) {
      if (span->end <= begin || span->end > time + kNear) continue;
      if (last == nullptr || span->end > last->end) last = span;
    }
    return last;
  }
  // Where the work before `time` began: at `begin`, or where the last wait since then ended.
  double work_since(double begin, double time) const {
    for (const TracedSpan* span : exposed_) {
      if (span->end < time - kNear) begin = std::max(begin, span->end);
    }
    return begin;
  }
  // The end of whatever was last before `time`.
  double last_end_before(double time) const {
    double end = step_.begin;
    for (const auto& spans : {exposed_, phases_}) {
      for (const TracedSpan* span : spans) {
        if (span->end <= time - kNear) end = std::max(end, span->end);
      }
    }
    return std::min(end, time);
  }

 private:
  static const TracedSpan* at(const std::vector<const TracedSpan*>& spans, double time) {
    for (const TracedSpan* span : spans) {
      if (span->begin < time - kNear && time <= span->end + kNear) return span;
    }
    return nullptr;
  }

  const TracedSpan& step_;
  std::vector<const TracedSpan*> exposed_;
  std::vector<const TracedSpan*> phases_;
  std::vector<const TracedSpan*> transfers_;
};

// The rank in a name such as "reduction: waits for rank 3".
std::optional<int> rank_waited_for(const std::string& name) {
  constexpr std::string_view kWords = ": waits for rank ";
  const auto at = name.rfind(kWords);
  if (at == std::string::npos) return std::nullopt;
  int rank = 0;
  const auto [stop, error] = std::from_chars(name.data() + at + kWords.size(), name.data() + name.size(), rank);
  if (error != std::errc() || stop != name.data() + name.size()) return std::nullopt;
  return rank;
}

}  // namespace

TracedRun read_traced_run(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw DataError(str("cannot read ", file.string()));
  try {
    return run_of(TraceJson::parse(stream));
  } catch (const TraceJson::exception& error) {
    throw DataError(str(file.string(), " is not a trace that Lockstep writes: ", error.what()));
  }
}

std::vector<PathPart> critical_path(const TracedRun& run, const std::string& step) {
  std::map<int, RankStep> ranks;
  for (const TracedSpan& span : run.spans) {
    if (span.category == kStep && span.name == step) ranks.try_emplace(span.rank, run, span.rank, span);
  }
  if (ranks.empty()) return {};
  const auto last = std::ranges::max_element(ranks, {}, [](const auto& each) { return each.second.end(); });
  int rank = last->first;
  double time = last->second.end();
  std::vector<PathPart> path;
  const auto add = [&](const std::string& what, double begin) {
    if (begin < time) path.push_back({.rank = rank, .what = what, .begin = begin, .end = time});
    time = begin;
  };
  while (time > ranks.at(rank).begin() + kNear) {
    const RankStep& current = ranks.at(rank);
    if (const TracedSpan* const wait = current.exposed_at(time)) {
      const TracedSpan* const transfer = current.transfer_before(wait->begin, time);
      const bool elsewhere = transfer != nullptr && transfer->begin > wait->begin &&
                             *transfer->last_rank != rank && ranks.contains(*transfer->last_rank);
      add("transfer", transfer == nullptr ? wait->begin : std::max(wait->begin, transfer->begin));
      if (elsewhere) rank = *transfer->last_rank;
    } else if (const TracedSpan* const phase = current.phase_at(time)) {
      add(phase->name, std::max(current.work_since(phase->begin, time), current.begin()));
    } else {
      add("other", std::min(current.last_end_before(time), time - kNear));
    }
  }
  std::ranges::reverse(path);
  return path;
}

std::vector<std::vector<double>> waits_of(const TracedRun& run) {
  const auto ranks = static_cast<std::size_t>(run.ranks);
  std::vector<std::vector<double>> waits(ranks, std::vector<double>(ranks, 0.0));
  for (const TracedSpan& span : run.spans) {
    if (span.category != "arrival") continue;
    const std::optional<int> late = rank_waited_for(span.name);
    if (!late || *late < 0 || *late >= run.ranks) continue;
    waits[static_cast<std::size_t>(span.rank)][static_cast<std::size_t>(*late)] += span.end - span.begin;
  }
  return waits;
}

}  // namespace lockstep::html
