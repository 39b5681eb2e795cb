// The rows of bench/strategies/rows.h as JSON.
#include <lockstep/bench/strategies/rows.h>

#include <lockstep/bench/json_text.h>

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json median_or_null(const std::optional<Spread>& spread) {
  return spread ? Json(spread->median) : Json();
}

Json quartiles_or_null(const std::optional<Spread>& spread) {
  return spread ? Json::array({spread->low, spread->high}) : Json();
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json cuts_or_null(const BenchStrategiesSettings& settings, const StrategyWay& way) {
  for (const StageCuts& cuts : settings.cuts) {
    if (cuts.stages == way.stages) return cuts.names;
  }
  return Json();
}

// The part common to all rows: the requested settings.
Json asked_for(const BenchStrategiesSettings& settings, const StrategyWay& way) {
  const bool pipeline = way.has_pipeline();
  return {{"way", way.name},
          {"model", settings.model},
          {"image_size", settings.image_size},
          {"strategy", way.strategy},
          {"dp_loss", text_or_null(way.dp_loss)},
          {"schedule", text_or_null(way.schedule)},
          {"stages", pipeline ? Json(way.stages) : Json()},
          {"cut", text_or_null(pipeline ? settings.cut : "")},
          {"cuts", cuts_or_null(settings, way)},
          {"micro_batches", way.micro_batches > 0 ? Json(way.micro_batches) : Json()},
          {"recompute", pipeline ? Json(way.recompute) : Json()},
          {"shard_optimizer", way.shard_optimizer},
          {"ranks", way.ranks},
          {"threads_per_rank", way.threads},
          {"batch", settings.work.batch},
          {"batch_per_rank", settings.work.batch / way.batch_shares},
          {"precision", settings.precision},
          {"optimizer", settings.optimizer}};
}

void add_measured(Json& json, const StrategyRow& row) {
  const StepLimit limit = limit_of(row);
  json.update(
      {{"backend", row.backend},
       {"processors", row.processors},
       {"rounds", row.rounds_ms.size()},
       {"steps", row.steps},
       {"step_ms", row.step_ms.median},
       {"step_ms_quartiles", Json::array({row.step_ms.low, row.step_ms.high})},
       {"step_ms_single", median_or_null(row.single_ms)},
       {"overhead_ms", median_or_null(row.overhead_ms)},
       {"ratio_to_single", median_or_null(row.ratio)},
       {"ratio_to_single_quartiles", quartiles_or_null(row.ratio)},
       {"samples_per_second", row.samples_per_second},
       {"processor_ms", row.processor_ms},
       {"utilisation", row.utilisation},
       {"forward_ms", row.forward_ms},
       {"backward_ms", row.backward_ms},
       {"communication_ms", row.communication_ms},
       {"optimizer_ms", row.optimizer_ms},
       {"exposed_ms", number_or_null(row.exposed_ms)},
       {"bubble", number_or_null(row.bubble)},
       {"bubble_replayed",
        row.way.has_pipeline() ? Json(row.way.replayed_bubble(row.whole_backward)) : Json()},
       {"whole_backward", row.way.has_pipeline() ? Json(row.whole_backward) : Json()},
       {"limited_by", limit.what},
       {"limited_by_share", limit.share},
       {"peak_rss_bytes", row.peak_bytes},
       {"peak_growth_bytes", row.peak_growth_bytes},
       {"proportional_bytes", row.proportional_bytes},
       {"device_bytes", row.device_bytes ? Json(*row.device_bytes) : Json()},
       {"rounds_ms", row.rounds_ms}});
}

}  // namespace

std::string to_json(const BenchStrategiesSettings& settings, const std::vector<StrategyRow>& rows) {
  Json json = Json::array();
  for (const StrategyRow& row : rows) {
    Json each = asked_for(settings, row.way);
    each["why_not"] = text_or_null(row.why_not);
    if (row.why_not.empty()) add_measured(each, row);
    json.push_back(std::move(each));
  }
  return json_text(json);
}

}  // namespace lockstep::bench
