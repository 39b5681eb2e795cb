#include <lockstep/report/html/run_data.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include <nlohmann/json.hpp>

#include <lockstep/core/credentials.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file_lock.h>
#include <lockstep/core/json_problem.h>
#include <lockstep/report/html/table_rows.h>
#include <lockstep/report/run_place.h>

namespace lockstep::html {
namespace {

constexpr const char* kCommunication = "communication";
constexpr const char* kStageWaits = "waits for a stage";
constexpr const char* kData = "data";
constexpr const char* kFirstBatch = "first batch";

using RecordJson = nlohmann::ordered_json;

std::string setting_text(const RecordJson& value) {
  if (value.is_string()) return without_credentials(value.get<std::string>());
  return value.dump();
}

std::optional<double> number_at(const RecordJson& object, const char* name) {
  if (!object.contains(name) || !object.at(name).is_number()) return std::nullopt;
  return object.at(name).get<double>();
}

std::optional<GpuUsage> gpu_of(const RecordJson& epoch) {
  if (!epoch.contains("gpu") || !epoch.at("gpu").is_object()) return std::nullopt;
  const RecordJson& gpu = epoch.at("gpu");
  return GpuUsage{.utilisation = gpu.at("utilisation").get<double>(),
                  .memory_utilisation = gpu.at("memory_utilisation").get<double>(),
                  .memory_bytes = gpu.at("memory_bytes").get<std::int64_t>(),
                  .power_watts = gpu.at("power_watts").get<double>()};
}

EpochData epoch_of(const RecordJson& epoch) {
  EpochData data{.epoch = epoch.at("epoch").get<double>(),
                 .steps = epoch.at("steps").get<double>(),
                 .steps_per_epoch = number_at(epoch, "steps_per_epoch").value_or(0),
                 .seconds = epoch.at("seconds").get<double>(),
                 .train_loss = number_at(epoch, "train_loss"),
                 .images_per_second = number_at(epoch, "images_per_second").value_or(0),
                 .gpu = gpu_of(epoch)};
  if (data.seconds > 0) {
    data.processors = number_at(epoch, "processor_seconds").value_or(0) / data.seconds;
  }
  const RecordJson& phases = epoch.at("phases");
  const double stage_waits = number_at(phases, "stage_waits").value_or(0);
  const double first_batch = number_at(epoch, "first_batch_seconds").value_or(0);
  const std::vector<std::string>& names = phase_names();
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    double seconds = number_at(phases, names[i].c_str()).value_or(0);
    if (names[i] == kStageWaits) seconds = stage_waits;
    if (names[i] == kCommunication) seconds -= stage_waits;  // contained in it in the record
    if (names[i] == kFirstBatch) seconds = first_batch;
    if (names[i] == kData) seconds -= first_batch;  // likewise
    data.phases.push_back(std::max(seconds, 0.0));
  }
  const double known = std::accumulate(data.phases.begin(), data.phases.end(), 0.0);
  data.phases.push_back(std::max(data.seconds - known, 0.0));
  if (epoch.contains("metrics") && epoch.at("metrics").is_object()) {
    for (const auto& [name, value] : epoch.at("metrics").items()) {
      if (value.is_number()) data.metrics[name] = value.get<double>();
    }
  }
  return data;
}

// The settings of a run; nested ones are named as in "versions: libtorch".
void add_settings(const RecordJson& object, const std::string& before, RunData& data) {
  static const std::vector<std::string> kElsewhere = {
      "epochs", "command", "state",      "error",    "started",     "profile",
      "test",   "best",    "validation", "commands", "interrupted", "fractions"};
  for (const auto& [name, value] : object.items()) {
    const bool is_elsewhere =
        before.empty() && std::ranges::find(kElsewhere, name) != kElsewhere.end();
    if (is_elsewhere || value.is_null()) continue;
    if (value.is_object()) {
      add_settings(value, before + name + ": ", data);
    } else {
      data.configuration.emplace_back(before + name, setting_text(value));
    }
  }
}

std::vector<RunCommand> recorded_commands(const RecordJson& run) {
  std::vector<RunCommand> commands;
  if (!run.contains("commands")) return commands;
  for (const RecordJson& each : run.at("commands")) {
    RunCommand command{.command = without_credentials(each.at("command").get<std::string>()),
                       .started = each.at("started").get<std::string>(),
                       .first_epoch = each.at("first_epoch").get<std::int64_t>(),
                       .first_step = each.value("first_step", std::int64_t{0})};
    const RecordJson& last = each.at("last_epoch");
    if (last.is_number_integer()) command.last_epoch = last.get<std::int64_t>();
    commands.push_back(std::move(command));
  }
  return commands;
}

// Sets each epoch's number of steps that were done before the command that made its record. Only
// the first epoch of a command can have some. Without `commands` the rest of an epoch in which the
// run was resumed counts as done.
void set_steps_before(const RecordJson& run, const std::vector<RunCommand>& commands,
                      std::vector<EpochData>& epochs) {
  for (const RunCommand& command : commands) {
    if (!command.last_epoch) continue;
    for (EpochData& epoch : epochs) {
      if (epoch.epoch == static_cast<double>(command.first_epoch)) {
        epoch.steps_before = static_cast<double>(command.first_step);
      }
    }
  }
  if (commands.empty() && run.contains("resumed_from") && !epochs.empty()) {
    EpochData& first = epochs.front();
    first.steps_before = std::max(first.steps_per_epoch - first.steps, 0.0);
  }
}

std::optional<BestEvaluation> best_of(const RecordJson& run) {
  if (!run.contains("best") || !run.at("best").is_object()) return std::nullopt;
  const RecordJson& best = run.at("best");
  const RecordJson& weights = best.at("weights");
  return BestEvaluation{.name = best.at("metric").get<std::string>(),
                        .value = best.at("value").get<double>(),
                        .epoch = best.at("epoch").get<std::int64_t>(),
                        .weights = weights.is_string() ? weights.get<std::string>() : ""};
}

// Devices of a process, and threads of a pipeline in one process, count as ranks.
int ranks_of(const RecordJson& run) {
  const int processes = run.at("world_size").get<int>();
  const int workers = static_cast<int>(number_at(run, "workers").value_or(1));
  if (processes == 1 && workers > 1) return workers;
  return processes * static_cast<int>(number_at(run, "devices").value_or(1));
}

std::string work_of(const RecordJson& run) {
  Workload work{.recipe = run.at("recipe").get<std::string>(),
                .loader = run.at("loader").get<std::string>(),
                .threads_per_rank = run.value("threads_per_rank", 1),
                .device = run.value("device", ""),
                .precision = run.value("precision", "")};
  if (run.contains("recipe_options")) {
    for (const auto& [name, value] : run.at("recipe_options").items()) {
      work.details.push_back(str(name, ' ', setting_text(value)));
    }
  }
  const auto batches =
      static_cast<std::int64_t>(number_at(run, "accumulate_grad_batches").value_or(1));
  if (batches > 1) work.details.push_back(batches_of_step(batches));
  return work_name(work);
}

RunData data_of(const RecordJson& run) {
  RunData data{.subject = str(run.at("recipe").get<std::string>(), ", ",
                              run.at("strategy").get<std::string>(), ", loader ",
                              run.at("loader").get<std::string>()),
               .state = run.value("state", "complete"),  // a record is written at the end
               .error = run.contains("error") ? setting_text(run.at("error")) : "",
               .started = run.value("started", ""),
               .command = without_credentials(run.value("command", "")),
               .commands = recorded_commands(run),
               .work = work_of(run),
               .ranks = ranks_of(run),
               .global_batch = run.value("global_batch", std::int64_t{0}),
               .seconds = number_at(run, "seconds_total").value_or(0),
               .peak_bytes = number_at(run, "peak_rss_bytes").value_or(0),
               .best = best_of(run)};
  add_settings(run, "", data);
  for (const RecordJson& epoch : run.at("epochs")) data.epochs.push_back(epoch_of(epoch));
  set_steps_before(run, data.commands, data.epochs);
  return data;
}

// Whether there is a step after the first epoch, or in the only one.
bool has_trained(const std::vector<EpochData>& epochs) {
  double steps = 0;
  for (std::size_t i = epochs.size() > 1 ? 1 : 0; i < epochs.size(); ++i) {
    if (epochs[i].seconds > 0) steps += epochs[i].steps;
  }
  return steps > 0;
}

// The name of the folder, or of a single record without its extension.
std::string name_of(const report::RunPlace& place) {
  if (place.folder.empty()) return place.record.stem().string();
  // Makes "run", "run/" and "." all yield a name.
  const std::filesystem::path folder =
      std::filesystem::absolute(place.folder / "").lexically_normal();
  return folder.parent_path().filename().string();
}

}  // namespace

const std::vector<std::string>& phase_names() {
  static const std::vector<std::string> names = {
      kData, "forward", "backward", kCommunication, kStageWaits, "optimizer", kFirstBatch, "other"};
  return names;
}

bool holds_run_record(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return false;
  std::ifstream stream(file);
  const RecordJson json = RecordJson::parse(stream, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("epochs");
}

RunData read_run_data(const std::filesystem::path& run) {
  const report::RunPlace place = report::place_of_run(run);
  std::ifstream stream(place.record);
  if (!stream) throw report::missing_record(run);
  RunData data;
  try {
    data = data_of(RecordJson::parse(stream));
  } catch (const RecordJson::exception& error) {
    throw DataError(json_refusal(place.record.string(), "is not what Lockstep writes", error));
  }
  data.name = name_of(place);
  // A record without its folder has no lock beside it.
  const bool may_run = place.folder.empty() || is_locked(place.folder / report::kRunLock) != false;
  if (data.state == "running" && !may_run) {
    data.state = "interrupted";
    data.error = report::kEndedUnnoticed;
  }
  if (has_trained(data.epochs)) data.facts = report::read_run_facts(run);
  if (place.folder.empty()) return data;
  std::error_code ignored;
  if (std::filesystem::exists(place.folder / "trace.json", ignored)) {
    data.trace = read_traced_run(place.folder / "trace.json");
  }
  data.pictures = read_pictures(place.folder);
  return data;
}

double best_rate(const RunData& run) {
  double best = 0;
  for (const EpochData& epoch : run.epochs) best = std::max(best, epoch.images_per_second);
  return best;
}

}  // namespace lockstep::html
