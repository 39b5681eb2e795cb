#include <lockstep/cli/explain/pipeline_picture.h>

#include <optional>

#include <nlohmann/json.hpp>

#include <lockstep/bench/json_text.h>
#include <lockstep/bench/sizes.h>
#include <lockstep/core/strings.h>
#include <lockstep/parallel/pipeline/schedule/bubble_formula.h>
#include <lockstep/parallel/pipeline/schedule/check.h>
#include <lockstep/report/text.h>

namespace lockstep::cli {
namespace {

using pipeline::Action;
using pipeline::Interval;
using pipeline::Kind;
using pipeline::Table;
using pipeline::Timeline;

struct TimeUnit {
  const char* name;
  double per_second;
};
constexpr TimeUnit kMilliseconds = {"ms", 1e3};
constexpr TimeUnit kMicroseconds = {"us", 1e6};

Timeline in_unit(Timeline seconds, const TimeUnit& unit) {
  for (auto& intervals : seconds.workers) {
    for (Interval& each : intervals) {
      each.begin *= unit.per_second;
      each.end *= unit.per_second;
    }
  }
  seconds.end *= unit.per_second;
  return seconds;
}

PipelinePicture begun_picture(const ExplainPipelineSettings& settings) {
  const Table& table = settings.table;
  return {.title = str(table.name, ": ", amount_of(table.stages(), "stage"), " on ",
                       amount_of(static_cast<std::int64_t>(table.workers.size()), "worker"), ", ",
                       amount_of(table.micro_batches, "micro-batch")),
          .table = table,
          .peak_activations = pipeline::check(table).peak_activations};
}

constexpr const char* kWaitingLabel = "; stages wait instead of computing";

std::string waiting_note(const bench::WaitingStages& waiting) {
  return str("Stages wait instead of computing: a forward, and each half of a backward, ",
             waiting.asked_microseconds, " us; a wait took ",
             report::fixed_text(waiting.mean_microseconds, 1), " us on average.");
}

std::optional<NamedBubble> bubble_by_formula(const ExplainPipelineSettings& settings) {
  if (!settings.stages_per_worker) return std::nullopt;
  const Table& table = settings.table;
  const auto workers = static_cast<int>(table.workers.size());
  const auto formula = pipeline::bubble_formula(table.name, workers, table.micro_batches,
                                                *settings.stages_per_worker);
  if (!formula) return std::nullopt;
  const std::string v =
      table.name == "interleaved" ? str(" and v = ", *settings.stages_per_worker) : "";
  return NamedBubble{"bubble_formula",
                     str("by formula: ", formula->text, " with p = ", workers,
                         v.empty() ? " and" : ",", " m = ", table.micro_batches, v),
                     formula->bubble};
}

}  // namespace

PipelinePicture picture_of(const ExplainPipelineSettings& settings) {
  const double message = settings.message_cost;
  const bool with_messages = message > 0 && !has_messages(settings.table);
  const Table table = with_messages ? pipeline::with_messages(settings.table) : settings.table;
  const auto cost = [&](const Action& action) {
    const bool sends = action.kind == Kind::kSendForward || action.kind == Kind::kSendBackward;
    return sends ? message : pipeline::unit_cost(action);
  };
  PipelinePicture picture = begun_picture(settings);
  PipelineChart chart{.name = "replayed",
                      .explanation = str("a forward takes 1, a backward 2, either half of one 1, "
                                         "a message ",
                                         message > 0 ? str(message) : "nothing"),
                      .timeline = replay(table, cost)};
  picture.bubbles.push_back(
      {"bubble_replayed", "replayed: " + chart.explanation, chart.timeline.bubble()});
  picture.charts.push_back(std::move(chart));
  if (auto formula = bubble_by_formula(settings)) picture.bubbles.push_back(std::move(*formula));
  return picture;
}

PipelinePicture picture_of(const ExplainPipelineSettings& settings,
                           const bench::PipelineMeasurement& measured) {
  PipelinePicture picture = begun_picture(settings);
  picture.worker_bytes = measured.worker_bytes;
  picture.stage_bytes = measured.stage_bytes;
  picture.waiting = measured.waiting;
  const Timeline replayed = replay(measured.table, costs_of(measured.timeline));
  const TimeUnit& unit = measured.timeline.end < 1e-3 ? kMicroseconds : kMilliseconds;
  picture.charts.push_back({.name = "measured",
                            .explanation = str("the step that took the median time",
                                               measured.waiting ? kWaitingLabel : ""),
                            .timeline = in_unit(measured.timeline, unit),
                            .unit = unit.name});
  picture.charts.push_back({.name = "replayed",
                            .explanation = "the same durations without the waits: the best that "
                                           "the table allows",
                            .timeline = in_unit(replayed, unit),
                            .unit = unit.name});
  picture.bubbles.push_back({"bubble", "measured", measured.timeline.bubble()});
  picture.bubbles.push_back(
      {"bubble_replayed", "replayed from the measured durations", replayed.bubble()});
  if (auto formula = bubble_by_formula(settings)) picture.bubbles.push_back(std::move(*formula));
  picture.executor = ExecutorCost{.step = measured.step_seconds,
                                  .empty_step = measured.empty_step_seconds,
                                  .over_replay = measured.timeline.end - replayed.end};
  if (measured.waiting) {
    picture.notes.push_back(waiting_note(*measured.waiting));
    return picture;  // waits need no processor
  }
  const auto threads = static_cast<std::size_t>(settings.toys ? settings.toys->threads : 1);
  const std::size_t wanted = settings.table.workers.size() * threads;
  if (measured.processors > 0 && static_cast<std::size_t>(measured.processors) < wanted) {
    const auto workers = static_cast<std::int64_t>(settings.table.workers.size());
    picture.notes.push_back(str("The ", noun_for(workers, "worker"), " wanted ", wanted,
                                " processors and shared ", measured.processors,
                                ": durations hold times in which a worker had none."));
  }
  return picture;
}

std::vector<int> stages_of_worker(const Table& table, std::size_t worker) {
  std::vector<int> stages;
  for (int stage = 0; stage < table.stages(); ++stage) {
    if (table.worker_of[static_cast<std::size_t>(stage)] == static_cast<int>(worker))
      stages.push_back(stage);
  }
  return stages;
}

std::string stage_bytes_text(const PipelinePicture& picture, std::size_t worker) {
  const std::vector<int> stages = stages_of_worker(picture.table, worker);
  if (picture.stage_bytes.empty() || stages.size() < 2) return "";
  std::vector<std::string> texts;
  for (const int stage : stages) {
    texts.push_back(bench::binary_bytes_text(
        static_cast<double>(picture.stage_bytes.at(static_cast<std::size_t>(stage)))));
  }
  return join(texts, " + ");
}

double executor_share(const ExecutorCost& cost) {
  return cost.step > 0 ? cost.empty_step / cost.step : 0;
}

std::vector<std::string> wrapped_table(const Table& table, std::size_t columns) {
  constexpr const char* kIndent = "    ";
  std::vector<std::string> lines;
  for (const auto& actions : table.workers) {
    std::string line;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const std::string cell = text(actions[i]) + (i + 1 < actions.size() ? "," : "");
      if (!line.empty() && line != kIndent && line.size() + cell.size() > columns) {
        lines.push_back(std::move(line));
        line = kIndent;
      }
      line += cell;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string picture_json(const PipelinePicture& picture) {
  nlohmann::ordered_json json = {{"schedule", picture.table.name},
                                 {"workers", picture.table.workers.size()},
                                 {"stages", picture.table.stages()},
                                 {"micro_batches", picture.table.micro_batches},
                                 {"peak_activations", picture.peak_activations}};
  for (const NamedBubble& each : picture.bubbles) json[each.key] = each.bubble;
  if (picture.executor) {
    json["step_ms"] = picture.executor->step * 1e3;
    json["executor_ms"] = picture.executor->empty_step * 1e3;
    json["executor_share"] = executor_share(*picture.executor);
    json["over_replay_ms"] = picture.executor->over_replay * 1e3;
  }
  if (!picture.worker_bytes.empty()) json["worker_bytes"] = picture.worker_bytes;
  if (!picture.stage_bytes.empty()) json["stage_bytes"] = picture.stage_bytes;
  if (picture.waiting) {
    json["wait_us"] = picture.waiting->asked_microseconds;
    json["wait_us_mean"] = picture.waiting->mean_microseconds;
  }
  return bench::json_text(json);
}

}  // namespace lockstep::cli
