#include <lockstep/report/html/traced_steps.h>

#include <algorithm>
#include <fstream>
#include <tuple>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>
#include <lockstep/report/waited_rank.h>

namespace lockstep::html {
namespace {

using TraceJson = nlohmann::json;
using SpanStart = std::tuple<int, int, double>;  // process, thread, time

constexpr int kMostRanks = 1 << 20;
constexpr const char* kNoTrace = "is not a trace that Lockstep writes";
constexpr const char* kStep = "step";
constexpr const char* kTraining = "training";
constexpr const char* kWaitForData = "wait for data";
constexpr const char* kBackward = "backward";
constexpr const char* kExposed = "exposed communication";

// Facts about spans from events that are not spans.
struct SpanNotes {
  std::map<std::pair<int, int>, std::string> tracks{};
  std::map<int, int> last_ranks{};  // by the collective's number
  // The number of the collective whose transfer begins there.
  std::map<SpanStart, int> collectives{};
};

SpanNotes notes_of(const TraceJson& events, TracedRun& run) {
  SpanNotes notes;
  for (const TraceJson& event : events) {
    const std::string phase = event.at("ph").get<std::string>();
    const int rank = event.at("pid").get<int>();
    const int track = event.at("tid").get<int>();
    if (rank < 0 || rank >= kMostRanks) throw DataError(str("rank ", rank, " in a trace"));
    run.ranks = std::max(run.ranks, rank + 1);
    if (phase == "M" && event.at("name") == "thread_name") {
      notes.tracks[{rank, track}] = event.at("args").at("name").get<std::string>();
    } else if (phase == "s" || phase == "f") {
      const int number = event.at("id").get<int>();
      if (phase == "s") notes.last_ranks[number] = rank;
      notes.collectives[{rank, track, event.at("ts").get<double>()}] = number;
    } else if (phase == "C") {
      const std::string name = event.at("name").get<std::string>();
      run.values.push_back({.rank = rank,
                            .name = name,
                            .time = event.at("ts").get<double>(),
                            .value = event.at("args").at(name).get<double>()});
    }
  }
  return notes;
}

TracedSpan span_of(const TraceJson& event, const SpanNotes& notes) {
  const int rank = event.at("pid").get<int>();
  const int track = event.at("tid").get<int>();
  const double begin = event.at("ts").get<double>();
  const auto name = notes.tracks.find({rank, track});
  TracedSpan span{.rank = rank,
                  .name = event.at("name").get<std::string>(),
                  .category = event.at("cat").get<std::string>(),
                  .track = name == notes.tracks.end() ? "" : name->second,
                  .begin = begin,
                  .end = begin + event.at("dur").get<double>()};
  const auto collective = notes.collectives.find({rank, track, begin});
  const bool may_match = span.category == "communication" || span.category == "collective";
  if (may_match && collective != notes.collectives.end()) {
    const auto last = notes.last_ranks.find(collective->second);
    if (last != notes.last_ranks.end()) span.last_rank = last->second;
  }
  return span;
}

// The steps of all ranks. Spans are sorted by beginning; a rank's wait precedes its step.
std::vector<TracedStep> steps_of(const TracedRun& run) {
  std::map<int, double> waits_since;  // by rank, since its last step
  std::map<std::string, std::size_t> places;
  std::vector<TracedStep> steps;
  for (const TracedSpan& span : run.spans) {
    if (span.name == kWaitForData && span.track == kTraining) {
      waits_since.try_emplace(span.rank, span.begin);
    }
    if (span.category != kStep) continue;
    const auto wait = waits_since.find(span.rank);
    const double begin = wait == waits_since.end() ? span.begin : wait->second;
    waits_since.erase(span.rank);
    const auto [place, is_new] = places.try_emplace(span.name, steps.size());
    if (is_new) steps.push_back({.name = span.name});
    steps[place->second].ranks[span.rank] = {.begin = begin, .end = span.end};
  }
  std::erase_if(steps, [&](const TracedStep& step) {
    return step.ranks.size() != static_cast<std::size_t>(run.ranks);
  });
  return steps;
}

TracedRun run_of(const TraceJson& trace) {
  TracedRun run;
  const TraceJson& events = trace.at("traceEvents");
  const SpanNotes notes = notes_of(events, run);
  for (const TraceJson& event : events) {
    if (event.at("ph") == "X") run.spans.push_back(span_of(event, notes));
  }
  std::ranges::stable_sort(run.spans, {}, &TracedSpan::begin);
  std::ranges::stable_sort(run.values, {}, &TracedValue::time);
  run.steps = steps_of(run);
  for (const TraceJson& clock : trace.at("otherData").at("clocks")) {
    run.uncertainty[clock.at("rank").get<int>()] = clock.at("uncertainty_us").get<double>();
  }
  return run;
}

}  // namespace

TracedRun read_traced_run(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw DataError(str("cannot read ", file.string()));
  try {
    return run_of(TraceJson::parse(stream));
  } catch (const TraceJson::exception& error) {
    throw DataError(json_refusal(file.string(), kNoTrace, error));
  } catch (const DataError& error) {
    throw DataError(json_refusal(file.string(), kNoTrace, error));
  }
}

StepWindow whole_window(const TracedStep& step) {
  StepWindow window = step.ranks.begin()->second;
  for (const auto& [rank, own] : step.ranks) {
    window.begin = std::min(window.begin, own.begin);
    window.end = std::max(window.end, own.end);
  }
  return window;
}

report::TimeWindows step_windows(const TracedRun& run, int rank) {
  std::vector<report::TimeWindow> windows;
  for (const TracedStep& step : run.steps) windows.push_back(step.ranks.at(rank));
  return report::TimeWindows(windows);
}

// Ranks also wait for each other between steps, for an evaluation or for a checkpoint.
std::map<std::pair<int, int>, double> waits_of(const TracedRun& run) {
  std::map<std::pair<int, int>, double> waits;
  std::map<int, report::TimeWindows> steps;  // by rank
  for (const TracedSpan& span : run.spans) {
    if (span.category != "arrival") continue;
    const std::optional<int> late = report::rank_waited_for(span.name);
    if (!late) continue;
    if (!steps.contains(span.rank)) steps[span.rank] = step_windows(run, span.rank);
    bool begins_in_step = false;
    steps[span.rank].visit(span.begin, span.begin, [&](std::size_t, const StepWindow& window) {
      begins_in_step = begins_in_step || span.begin < window.end;
    });
    if (begins_in_step) waits[{span.rank, *late}] += span.end - span.begin;
  }
  return waits;
}

std::vector<std::pair<std::string, double>> mean_phases(const TracedRun& run, int rank) {
  std::vector<std::pair<std::string, double>> phases;
  const auto time_of = [&](const std::string& name) -> double& {
    const auto found = std::ranges::find(phases, name, &std::pair<std::string, double>::first);
    if (found != phases.end()) return found->second;
    return phases.emplace_back(name, 0.0).second;
  };
  const report::TimeWindows steps = step_windows(run, rank);
  std::vector<double> backward(run.steps.size());
  std::vector<double> exposed(run.steps.size());
  for (const TracedSpan& span : run.spans) {
    const bool is_phase = span.category == "phase" && span.track == kTraining;
    if (span.rank != rank || (!is_phase && span.name != kExposed)) continue;
    steps.visit(span.begin, span.end, [&](std::size_t step, const StepWindow& window) {
      const double part = window.overlap(span.begin, span.end);
      if (part <= 0) return;
      if (span.name == kExposed) exposed[step] += part;
      if (span.name == kBackward) backward[step] += part;
      if (is_phase) time_of(span.name) += part;
    });
  }
  double hidden = 0, shown = 0;
  for (std::size_t step = 0; step < exposed.size(); ++step) {
    hidden += std::min(exposed[step], backward[step]);
    shown += exposed[step];
  }
  if (shown > 0) {
    time_of(kBackward) -= hidden;
    time_of(kExposed) += shown;
  }
  for (auto& [name, time] : phases) time /= static_cast<double>(run.steps.size());
  return phases;
}

}  // namespace lockstep::html
