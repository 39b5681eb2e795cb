#include <lockstep/simulate/trace_profile.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/error.h>
#include <lockstep/core/json_problem.h>
#include <lockstep/core/measuring/quantile.h>

namespace lockstep::simulate {
namespace {

using TraceJson = nlohmann::json;

constexpr double kMicroseconds = 1e-6;
constexpr std::string_view kBucketTrack = "bucket ";
constexpr const char* kNotOurs = "is not what Lockstep writes";
constexpr const char* kRunOfZero1 =
    "the update of a zero1 run is one rank's share and has the gather in it; trace a run "
    "of strategy ddp, from which zero1 can be predicted";

struct TracedSpan {
  double begin = 0;  // seconds
  double end = 0;
};

// A reduction of a bucket, or a part of its time.
struct TracedReduction {
  TracedSpan span{};
  double bytes = 0;
  std::int64_t parameters = 1;
};

// The spans of one rank in the trace.
struct RankEvents {
  std::map<int, std::string> tracks{};
  std::vector<TracedSpan> steps{};      // steps of the training loop
  std::vector<TracedSpan> data{};       // waits for batches
  std::vector<TracedSpan> pauses{};     // evaluations, checkpoints: no training
  std::vector<TracedSpan> backward{};   // calls of backward
  std::vector<TracedSpan> gradients{};  // first gradient to last
  std::vector<TracedSpan> exposed{};
  std::vector<TracedSpan> optimizer{};
  std::map<int, std::vector<TracedReduction>> reductions{};  // by bucket; including waits
};

// One step of one rank; times in seconds.
struct TracedStep {
  // The time to the beginning of the next step. Below 0 if there is none, or other work lies
  // between.
  double period = -1;
  double data = 0;
  double forward = 0;
  double backward = 0;
  double exposed = 0;
  double optimizer = 0;
  double alone = 0;  // from the step's beginning to its last gradient, without waits for data
  std::vector<double> ready{};
};

constexpr const char* kGiveARun =
    ": give the folder of a `lockstep train --strategy ddp --trace --out FOLDER` run";

TraceJson read_file(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw DataError(str("there is no ", file.string(), kGiveARun));
  try {
    return TraceJson::parse(stream);
  } catch (const TraceJson::exception& error) {
    throw DataError(json_refusal(file.string(), kNotOurs, error));
  }
}

double number_in(const TraceJson& arguments, const char* name, double absent) {
  return arguments.contains(name) ? std::stod(arguments.at(name).get<std::string>()) : absent;
}

std::int64_t count_in(const TraceJson& arguments, const char* name, std::int64_t absent) {
  if (!arguments.contains(name)) return absent;
  const std::string text = arguments.at(name).get<std::string>();
  const char* const end = text.data() + text.size();
  std::int64_t count = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error == std::errc() && stop == end) return count;
  throw DataError(str(name, " of a bucket must be a whole number, got '", text, "'"));
}

void add_phase(const std::string& name, const TracedSpan& span, RankEvents& to) {
  if (name == "wait for data") to.data.push_back(span);
  if (name == "backward") to.backward.push_back(span);
  if (name == "optimizer") to.optimizer.push_back(span);
  if (name == "evaluation" || name == "checkpoint") to.pauses.push_back(span);
}

void add_reduction(const std::string& track, const TraceJson& event, const TracedSpan& span,
                   RankEvents& to) {
  const int bucket = std::stoi(track.substr(kBucketTrack.size()));
  const TraceJson& arguments = event.at("args");
  to.reductions[bucket].push_back({.span = span,
                                   .bytes = number_in(arguments, "bytes", 0),
                                   .parameters = count_in(arguments, "parameters", 1)});
}

void add_span(const TraceJson& event, RankEvents& to) {
  const double begin = kMicroseconds * event.at("ts").get<double>();
  const TracedSpan span{begin, begin + kMicroseconds * event.at("dur").get<double>()};
  const std::string category = event.at("cat").get<std::string>();
  const std::string name = event.at("name").get<std::string>();
  const std::string& track = to.tracks[event.at("tid").get<int>()];
  if (category == "step") to.steps.push_back(span);
  if (category == "phase") add_phase(name, span, to);
  if (category == "backward" && track == "backward") to.gradients.push_back(span);
  if (name == "exposed communication") to.exposed.push_back(span);
  if (track.starts_with(kBucketTrack)) add_reduction(track, event, span, to);
}

double begin_of_reduction(const TracedReduction& reduction) { return reduction.span.begin; }

// Spans are looked up by their beginnings.
void sort_by_beginning(RankEvents& rank) {
  for (std::vector<TracedSpan>* const spans :
       {&rank.steps, &rank.data, &rank.pauses, &rank.backward, &rank.gradients, &rank.exposed,
        &rank.optimizer}) {
    std::ranges::sort(*spans, {}, &TracedSpan::begin);
  }
  for (auto& [bucket, reductions] : rank.reductions) {
    std::ranges::sort(reductions, {}, begin_of_reduction);
  }
}

std::map<int, RankEvents> events_of(const TraceJson& trace) {
  std::map<int, RankEvents> ranks;
  for (const TraceJson& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph").get<std::string>();
    if (phase != "M" && phase != "X") continue;
    RankEvents& rank = ranks[event.at("pid").get<int>()];
    if (phase == "X") {
      add_span(event, rank);
    } else if (event.at("name") == "thread_name") {
      rank.tracks[event.at("tid").get<int>()] = event.at("args").at("name").get<std::string>();
    }
  }
  for (auto& [number, rank] : ranks) sort_by_beginning(rank);
  return ranks;
}

// The last span that begins in [from, to).
const TracedSpan* last_within(const std::vector<TracedSpan>& spans, double from, double to) {
  const auto after = std::ranges::lower_bound(spans, to, {}, &TracedSpan::begin);
  if (after == spans.begin() || (after - 1)->begin < from) return nullptr;
  return &*(after - 1);
}

// When the bucket of these spans was ready in the step: the first span that begins there.
std::optional<double> ready_within(const std::vector<TracedReduction>& spans, double from,
                                   double to) {
  const auto first = std::ranges::lower_bound(spans, from, {}, begin_of_reduction);
  if (first == spans.end() || first->span.begin >= to) return std::nullopt;
  return first->span.begin;
}

// The total of the waits for batches that begin in [from, to).
double waited_within(const RankEvents& rank, double from, double to) {
  double waited = 0;
  auto wait = std::ranges::lower_bound(rank.data, from, {}, &TracedSpan::begin);
  for (; wait != rank.data.end() && wait->begin < to; ++wait) waited += wait->end - wait->begin;
  return waited;
}

// Returns nothing if a part of the step is missing, as in the step in which the trace begins.
std::optional<TracedStep> step_of(const RankEvents& rank, std::size_t index) {
  const TracedSpan& span = rank.steps[index];
  const TracedSpan* const backward = last_within(rank.backward, span.begin, span.end);
  const TracedSpan* const gradients = last_within(rank.gradients, span.begin, span.end);
  const TracedSpan* const optimizer = last_within(rank.optimizer, span.begin, span.end);
  if (!backward || !gradients || !optimizer) return std::nullopt;
  const TracedSpan* const exposed = last_within(rank.exposed, gradients->begin, span.end);
  // A step that accumulates batches waits within its span for all but the first batch.
  const double waited = waited_within(rank, span.begin, backward->begin);
  TracedStep step{.forward = backward->begin - span.begin - waited,
                  .backward = gradients->end - backward->begin,
                  .exposed = exposed ? exposed->end - exposed->begin : 0,
                  .optimizer = optimizer->end - optimizer->begin,
                  .alone = gradients->end - span.begin - waited};
  for (const auto& [bucket, spans] : rank.reductions) {
    const auto ready = ready_within(spans, backward->begin, span.end);
    if (!ready) return std::nullopt;
    step.ready.push_back(std::clamp(*ready - backward->begin, 0.0, step.backward));
  }
  if (index + 1 == rank.steps.size()) return step;
  const double next = rank.steps[index + 1].begin;
  if (last_within(rank.pauses, span.begin, next)) return step;
  step.period = next - span.begin;
  step.data = waited_within(rank, span.begin, next);
  return step;
}

using StepsOfRanks = std::vector<std::vector<TracedStep>>;

// The median over the steps that have the value, then the mean over the ranks.
template <class Value>
double typical(const StepsOfRanks& ranks, const Value& value, double fraction = 0.5) {
  double sum = 0;
  for (const auto& steps : ranks) {
    std::vector<double> values;
    for (const TracedStep& step : steps) {
      if (const std::optional<double> found = value(step)) values.push_back(*found);
    }
    sum += quantile(std::move(values), fraction);
  }
  return sum / static_cast<double>(ranks.size());
}

std::optional<double> period_of(const TracedStep& step) {
  if (step.period < 0) return std::nullopt;
  return step.period;
}

std::optional<double> data_of(const TracedStep& step) {
  if (step.period < 0) return std::nullopt;
  return step.data;
}

// Ranks begin a step together, except for their work between the end of a reduction and that point.
// Takes the median, because an interruption that occurs once in many steps does not appear in the
// other medians either.
double straggler_seconds(const StepsOfRanks& ranks) {
  std::size_t shared = ranks.front().size();
  for (const auto& steps : ranks) shared = std::min(shared, steps.size());
  std::vector<double> behind;
  for (std::size_t i = 1; i <= shared; ++i) {
    double slowest = 0, sum = 0;
    for (const auto& steps : ranks) {
      const double alone = steps[steps.size() - i].alone;
      slowest = std::max(slowest, alone);
      sum += alone;
    }
    behind.push_back(slowest - sum / static_cast<double>(ranks.size()));
  }
  return median(std::move(behind));
}

StepsOfRanks steps_of(const std::map<int, RankEvents>& ranks) {
  StepsOfRanks all;
  for (const auto& [number, rank] : ranks) {
    if (rank.reductions.empty())
      throw DataError(
          "it has no reductions of buckets; train on at least 2 ranks with "
          "`lockstep train --strategy ddp --trace`");
    auto& steps = all.emplace_back();
    for (std::size_t i = 0; i < rank.steps.size(); ++i) {
      if (auto step = step_of(rank, i)) steps.push_back(std::move(*step));
    }
    if (steps.size() >= kFewestTracedSteps) continue;
    throw DataError(str("it has ", steps.size(), " whole steps of rank ", number, "; at least ",
                        kFewestTracedSteps,
                        " are needed, so train longer or trace more steps with "
                        "`lockstep train --trace --trace-steps`"));
  }
  if (all.empty()) throw DataError("it has no events");
  for (const auto& steps : all) {
    if (steps.front().ready.size() == all.front().front().ready.size()) continue;
    throw DataError("its ranks have different numbers of buckets");
  }
  return all;
}

void add_buckets(const StepsOfRanks& steps, const RankEvents& rank, StepProfile& to) {
  double ready = 0;
  std::size_t index = 0;
  for (const auto& [number, spans] : rank.reductions) {
    ProfileBucket bucket;
    for (const TracedReduction& each : spans) {
      bucket.bytes = std::max(bucket.bytes, each.bytes);
      bucket.parameters = std::max(bucket.parameters, each.parameters);
    }
    ready =
        std::max(ready, typical(steps, [index](const TracedStep& step) -> std::optional<double> {
                   return step.ready[index];
                 }));
    bucket.ready_seconds = std::min(ready, to.backward_seconds);
    if (bucket.bytes > 0) to.buckets.push_back(bucket);  // sparse gradients have no size
    ++index;
  }
}

// Returns `to` with the values from the trace.
StepProfile with_steps(const TraceJson& trace, StepProfile to) {
  const std::map<int, RankEvents> ranks = events_of(trace);
  const StepsOfRanks steps = steps_of(ranks);
  const int traced = static_cast<int>(steps.size());
  if (!to.strategy.empty() && traced != to.ranks) {
    throw DataError(str("it has ", amount_of(traced, "rank"), " and run.json beside it ", to.ranks,
                        ": it is another run's; train again with `lockstep train --trace`"));
  }
  to.ranks = traced;
  if (to.strategy.empty()) to.strategy = "ddp";
  const auto of = [&](double TracedStep::* member) {
    return typical(
        steps, [member](const TracedStep& step) -> std::optional<double> { return step.*member; });
  };
  to.steps = static_cast<std::int64_t>(steps.front().size());
  to.step_seconds = typical(steps, period_of);
  to.step_low_seconds = typical(steps, period_of, 0.25);
  to.step_high_seconds = typical(steps, period_of, 0.75);
  to.data_seconds = typical(steps, data_of);
  to.forward_seconds = of(&TracedStep::forward);
  to.backward_seconds = of(&TracedStep::backward);
  to.exposed_seconds = of(&TracedStep::exposed);
  to.optimizer_seconds = of(&TracedStep::optimizer);
  to.straggler_seconds = straggler_seconds(steps);
  to.other_seconds =
      std::max(0.0, to.step_seconds - to.data_seconds - to.forward_seconds - to.backward_seconds -
                        to.exposed_seconds - to.optimizer_seconds);
  add_buckets(steps, ranks.begin()->second, to);
  return to;
}

StepProfile profile_of_record(const TraceJson& run) {
  StepProfile profile;
  profile.name = run.at("recipe").get<std::string>();
  profile.strategy = run.at("strategy").get<std::string>();
  profile.backend = run.at("backend").get<std::string>();
  profile.ranks = run.at("world_size").get<int>();
  profile.batch_per_rank = run.at("global_batch").get<std::int64_t>() / std::max(profile.ranks, 1);
  profile.threads_per_rank = std::max<std::int64_t>(run.value("threads_per_rank", 1), 1);
  // On a GPU, the processors are not the resource that ranks would share.
  if (run.value("device", "") == "cpu") profile.processors = run.value("usable_processors", 0);
  if (profile.strategy == "zero1") throw DataError(kRunOfZero1);
  if (profile.strategy != "ddp") {
    throw DataError(str("a run of strategy ", profile.strategy,
                        " has no buckets of gradients to simulate; train with "
                        "`lockstep train --strategy ddp`"));
  }
  return profile;
}

// Returns the result of `read` for a file; errors name the file.
template <class Read>
auto checked(const std::filesystem::path& file, const Read& read) {
  const TraceJson json = read_file(file);
  try {
    return read(json);
  } catch (const TraceJson::exception& error) {
    throw DataError(json_refusal(file.string(), kNotOurs, error));
  } catch (const std::logic_error& error) {  // an unreadable number
    throw DataError(json_refusal(file.string(), kNotOurs, error));
  } catch (const DataError& error) {
    throw DataError(str(file.string(), ": ", error.what()));
  }
}

StepProfile profile_of_trace(const std::filesystem::path& file, StepProfile profile) {
  const std::string name = file.stem().string();
  // `bench step` puts the strategy in the name of a trace; the trace itself does not state it.
  if (profile.strategy.empty() && name.starts_with("zero1")) {
    throw DataError(str(file.string(), ": ", kRunOfZero1));
  }
  profile = checked(file, [&](const TraceJson& trace) { return with_steps(trace, profile); });
  if (profile.name.empty()) profile.name = name;
  validate(profile, file.string());
  return profile;
}

}  // namespace

StepProfile read_trace_profile(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return profile_of_trace(path, {});
  std::error_code error;  // with one, the message about the file says why
  if (!std::filesystem::exists(path, error) && !error)
    throw DataError(str(path.string(), " does not exist", kGiveARun));
  StepProfile profile = checked(path / "run.json", profile_of_record);
  return profile_of_trace(path / "trace.json", std::move(profile));
}

StepProfile find_step_profile(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return read_trace_profile(path);
  const bool is_trace =
      checked(path, [](const TraceJson& json) { return json.contains("traceEvents"); });
  return is_trace ? read_trace_profile(path) : read_step_profile(path);
}

}  // namespace lockstep::simulate
