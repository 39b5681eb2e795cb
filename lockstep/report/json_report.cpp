#include <lockstep/report/json_report.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include <lockstep/core/encoding/json_text.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

Json phases_json(const PhaseSeconds& phases) {
  return {{"data", phases.data},           {"forward", phases.forward},
          {"backward", phases.backward},   {"communication", phases.communication},
          {"optimizer", phases.optimizer}, {"stage_waits", phases.stage_waits}};
}

// Loss and values by name, and tables as {"labels", "rows"}.
Json evaluation_json(const std::optional<Evaluation>& evaluation) {
  if (!evaluation) return nullptr;
  Json json = Json::object();
  if (evaluation->has_loss) json["loss"] = evaluation->loss;
  for (const MetricValue& value : evaluation->values) json[value.name] = value.value;
  for (const MetricTable& table : evaluation->tables) {
    json[table.name] = {{"labels", table.labels}, {"rows", table.rows}};
  }
  return json;
}

Json setup_json(const SetupSeconds& setup) {
  return {{"group", setup.group},
          {"loader", setup.loader},
          {"model", setup.model},
          {"synchronization", setup.synchronization}};
}

Json gpu_json(const std::optional<GpuUsage>& gpu) {
  if (!gpu) return nullptr;
  return {{"utilisation", gpu->utilisation},
          {"memory_utilisation", gpu->memory_utilisation},
          {"memory_bytes", gpu->memory_bytes},
          {"power_watts", gpu->power_watts}};
}

Json best_json(const std::optional<BestEvaluation>& best) {
  if (!best) return nullptr;
  return {{"metric", best->name},
          {"value", best->value},
          {"epoch", best->epoch},
          {"weights", best->weights.empty() ? Json() : Json(best->weights)}};
}

Json known_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json epoch_json(const EpochReport& epoch) {
  Json json{{"epoch", epoch.epoch},
            {"steps", epoch.steps},
            {"seconds", epoch.seconds},
            {"train_loss", epoch.train_loss},
            {"images_per_second", epoch.images_per_second},
            {"phases", phases_json(epoch.phases)},
            {"first_batch_seconds", epoch.first_batch_seconds},
            {"processor_seconds", epoch.processor_seconds},
            {"processor_wait_seconds", known_or_null(epoch.processor_wait_seconds)},
            {"busy_processors", known_or_null(epoch.busy_processors)},
            {"gpu", gpu_json(epoch.gpu)},
            {"metrics", evaluation_json(epoch.test)},
            {"rss_bytes", epoch.rss_bytes}};
  if (epoch.steps < epoch.steps_per_epoch) json["steps_per_epoch"] = epoch.steps_per_epoch;
  return json;
}

bool is_special(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !fs::is_regular_file(path, error);
}

}  // namespace

fs::path behind_links(const fs::path& path) {
  std::error_code error;
  const fs::path file = fs::canonical(path, error);
  return error ? path : file;
}

std::string to_json(const RunReport& report) {
  const RunInfo& info = report.info;
  Json json{{"recipe", info.recipe},
            {"strategy", info.strategy},
            {"backend", info.backend},
            {"loader", info.loader},
            {"precision", info.precision},
            {"slow_precisions", info.slow_precisions},
            {"device", info.device},
            {"fused_kernels", info.fused_kernels},
            {"world_size", info.world_size},
            {"threads_per_rank", info.threads_per_rank},
            {"global_batch", info.global_batch},
            {"steps_per_epoch", info.steps_per_epoch},
            {"learning_rate", info.learning_rate},
            {"setup_seconds", setup_json(info.setup)},
            {"already_complete", report.already_complete},
            {"epochs", Json::array()},
            {"validation", evaluation_json(report.test)},
            {"best", best_json(report.best)},
            {"test", evaluation_json(report.test)},
            {"skipped_images", report.skipped_images},
            {"seconds_to_first_step", report.seconds_to_first_step},
            {"seconds_total", report.seconds_total},
            {"peak_rss_bytes", report.peak_rss_bytes}};
  if (!info.dp_loss.empty()) {
    json["devices"] = info.devices;
    if (!info.device_weights.empty()) json["device_weights"] = info.device_weights;
    json["dp_loss"] = info.dp_loss;
  }
  if (info.stages > 0) {
    json["stages"] = info.stages;
    if (info.workers > 0) json["workers"] = info.workers;
    json["cuts"] = info.cuts;
    json["whole_backward"] = info.whole_backward;
    json["micro_batches"] = info.micro_batches;
    json["schedule"] = info.schedule;
    json["recompute"] = info.recompute;
  }
  if (!info.recipe_options.empty()) json["recipe_options"] = info.recipe_options;
  if (!info.weights.empty()) json["weights"] = info.weights;
  if (!info.provenance.empty()) json["provenance"] = info.provenance;
  if (info.accumulate_grad_batches > 1) {
    json["accumulate_grad_batches"] = info.accumulate_grad_batches;
  }
  for (const EpochReport& epoch : report.epochs) json["epochs"].push_back(epoch_json(epoch));
  for (const ProfiledAction& action : report.profile) {
    json["profile"].push_back(
        {{"action", action.name}, {"calls", action.calls}, {"seconds", action.seconds}});
  }
  if (!report.stop_reason.empty()) json["stop_reason"] = report.stop_reason;
  if (report.interrupted) json["interrupted"] = true;
  if (!report.saved_in.empty()) json["saved_in"] = report.saved_in;
  if (!info.resumed_from.empty()) json["resumed_from"] = info.resumed_from;
  return json_text(json, 2) + "\n";
}

void write_text_file(const fs::path& path, const std::string& text) {
  if (!is_special(path)) return write_file_atomically(behind_links(path), text);
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) throw DataError(str("cannot write ", path.string()));
}

void JsonReport::on_run_begin(const RunInfo&) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) {
    throw ConfigError(str("cannot write the report to ", path_.string(), ": it is a folder"));
  }
  if (!is_special(path_)) make_writable_directory(folder_of(behind_links(path_)));
}

void JsonReport::on_run_end(const RunReport& report) { write_text_file(path_, to_json(report)); }

}  // namespace lockstep::report
