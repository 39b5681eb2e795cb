#include <lockstep/report/run_record.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/core/cpu.h>
#include <lockstep/core/credentials.h>
#include <lockstep/core/encoding/json_text.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/log.h>
#include <lockstep/report/json_report.h>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRecordFile = "run.json";
constexpr const char* kRunning = "running";
constexpr const char* kComplete = "complete";

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

// What the record of a resumed run keeps of the one that it resumes.
struct KeptRecord {
  Json epochs = Json::array();
  Json commands = Json::array();
  std::set<std::string> fractions{};
  long long peak_bytes = 0;
};

std::optional<std::int64_t> whole_number_at(const Json& json, const char* name) {
  if (!json.contains(name) || !json.at(name).is_number_integer()) return std::nullopt;
  return json.at(name).get<std::int64_t>();
}

double number_or_nan(const Json& json, const char* name) {
  if (!json.contains(name) || !json.at(name).is_number()) return std::nan("");
  return json.at(name).get<double>();
}

// The commands of a record. Earlier versions recorded the last one only.
Json commands_in(const Json& record) {
  if (record.contains("commands")) return record.at("commands");
  const Json& epochs = record.at("epochs");
  Json command{{"command", record.value("command", "")},
               {"started", record.value("started", "")},
               {"first_epoch", 1},
               {"first_step", 0},
               {"last_epoch", nullptr}};
  if (!epochs.empty()) command["last_epoch"] = epochs.back().at("epoch");
  Json commands = Json::array();
  commands.push_back(std::move(command));
  return commands;
}

// The commands and the time of each. Earlier versions recorded the time of the last one only.
Json timed_commands_in(const Json& record) {
  Json commands = commands_in(record);
  const double seconds = number_or_nan(record, "seconds_total");
  if (!commands.empty() && !commands.back().contains("seconds") && seconds > 0) {
    commands.back()["seconds"] = seconds;
  }
  return commands;
}

// The names of the values of `test` that are fractions.
void add_fractions(const std::optional<Evaluation>& test, std::set<std::string>& names) {
  if (!test) return;
  for (const MetricValue& value : test->values) {
    if (value.unit == MetricUnit::kFraction) names.insert(value.name);
  }
}

// The epochs before `first`, and the commands. An unreadable record has none, since the run does
// not resume from it.
KeptRecord kept_of(const std::filesystem::path& file, std::int64_t first) {
  try {
    std::ifstream stream(file);
    const Json record = Json::parse(stream);
    KeptRecord kept;
    for (const Json& epoch : record.at("epochs")) {
      if (epoch.at("epoch").get<std::int64_t>() < first) kept.epochs.push_back(epoch);
    }
    for (Json command : timed_commands_in(record)) {
      if (const auto last = whole_number_at(command, "last_epoch")) {
        const std::int64_t kept_last = std::min(*last, first - 1);
        const bool has_epoch = kept_last >= command.at("first_epoch").get<std::int64_t>();
        command["last_epoch"] = has_epoch ? Json(kept_last) : Json();
      }
      kept.commands.push_back(std::move(command));
    }
    if (record.contains("fractions")) record.at("fractions").get_to(kept.fractions);
    kept.peak_bytes = whole_number_at(record, "peak_rss_bytes").value_or(0);
    return kept;
  } catch (const Json::exception&) {
    return {};
  }
}

// The results in an epoch's "metrics", without tables.
std::optional<Evaluation> evaluation_from(const Json& metrics,
                                          const std::set<std::string>& fractions) {
  if (!metrics.is_object()) return std::nullopt;
  Evaluation evaluation{.has_loss = false};
  for (const auto& [name, value] : metrics.items()) {
    if (value.is_structured()) continue;
    const double number = number_or_nan(metrics, name.c_str());
    if (name == "loss") {
      evaluation.has_loss = true;
      evaluation.loss = number;
    } else {
      const MetricUnit unit =
          fractions.contains(name) ? MetricUnit::kFraction : MetricUnit::kNumber;
      evaluation.values.push_back({.name = name, .value = number, .unit = unit});
    }
  }
  return evaluation;
}

EpochReport epoch_from(const Json& json, const std::set<std::string>& fractions) {
  EpochReport epoch;
  epoch.epoch = json.at("epoch").get<std::int64_t>();
  epoch.steps = json.at("steps").get<std::int64_t>();
  epoch.steps_per_epoch = whole_number_at(json, "steps_per_epoch").value_or(epoch.steps);
  epoch.seconds = json.at("seconds").get<double>();
  epoch.train_loss = number_or_nan(json, "train_loss");
  epoch.images_per_second = number_or_nan(json, "images_per_second");
  const Json& phases = json.at("phases");
  epoch.phases = {.data = phases.value("data", 0.0),
                  .forward = phases.value("forward", 0.0),
                  .backward = phases.value("backward", 0.0),
                  .communication = phases.value("communication", 0.0),
                  .optimizer = phases.value("optimizer", 0.0)};
  if (json.contains("metrics")) epoch.test = evaluation_from(json.at("metrics"), fractions);
  return epoch;
}

std::string shell_word(const std::string& word) {
  const bool is_plain = word.find_first_not_of(
                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "0123456789-_=+.,:/@%") == std::string::npos;
  if (is_plain && !word.empty()) return word;
  std::string text = "'";
  for (const char letter : word)
    text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

}  // namespace

std::vector<EpochReport> recorded_epochs(const std::filesystem::path& folder, std::int64_t before) {
  std::vector<EpochReport> epochs;
  try {
    const KeptRecord kept = kept_of(folder / kRecordFile, before);
    for (const Json& each : kept.epochs) epochs.push_back(epoch_from(each, kept.fractions));
  } catch (const Json::exception&) {  // written by another program
    epochs.clear();
  }
  return epochs;
}

void close_record(const std::filesystem::path& folder, const std::string& state,
                  const std::string& error) {
  const std::filesystem::path file = folder / kRecordFile;
  try {
    std::ifstream stream(file);
    if (!stream) return;
    Json record = Json::parse(stream);
    if (record.at("state").get<std::string>() != kRunning) return;
    record["state"] = state;
    record["error"] = without_credentials(error);
    write_file_atomically(file, json_text(record, 2) + "\n");
  } catch (const Json::exception&) {  // written by another program
  } catch (const std::exception& failure) {
    log_warning(first_line(failure));
  }
}

std::string command_line(const std::string& left_out) {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    if (!left_out.empty() && word == left_out) continue;
    words.push_back(shell_word(word_without_credentials(word)));
  }
  return join(words, " ");
}

RunRecord::RunRecord(const std::filesystem::path& folder, RunOrigin origin)
    : file_(folder / kRecordFile), origin_(std::move(origin)) {}

void RunRecord::on_run_begin(const RunInfo& info) {
  started_ = utc_now();
  begin_ = Clock::now();
  std::error_code ignored;  // writing the file fails with a better message
  std::filesystem::create_directories(file_.parent_path(), ignored);
  if (!info.resumed_from.empty()) {
    const KeptRecord kept = kept_of(file_, info.first_epoch);
    epochs_before_ = kept.epochs.dump();
    commands_before_ = kept.commands.dump();
    fractions_before_ = kept.fractions;
    peak_before_ = kept.peak_bytes;
  } else {
    // A trace of another run would pass for one of this run.
    std::filesystem::remove(file_.parent_path() / "trace.json", ignored);
  }
  so_far_.info = info;
  if (!info.already_complete) write(so_far_, kRunning);
}

void RunRecord::on_epoch_end(const EpochReport& report) {
  so_far_.epochs.push_back(report);
  so_far_.seconds_total = seconds_since(begin_);
  write(so_far_, kRunning);
}

void RunRecord::on_run_end(const RunReport& report) {
  if (report.info.already_complete && keeps_complete(report)) return;
  write(report, report.interrupted ? "interrupted" : kComplete);
}

// Called at the end of a run that was already complete. Whether the file has a record; one that
// does not say so, because its process was killed after the last checkpoint, is made to.
bool RunRecord::keeps_complete(const RunReport& report) const {
  try {
    std::ifstream stream(file_);
    Json record = Json::parse(stream);
    if (!record.at("epochs").is_array()) return false;
    if (record.at("state").get<std::string>() == kComplete) return true;
    const Json now = Json::parse(report::to_json(report));
    record["state"] = kComplete;
    for (const char* name : {"error", "interrupted", "saved_in", "stop_reason"}) record.erase(name);
    for (const char* name : {"validation", "best", "test", "stop_reason"}) {
      if (now.contains(name)) record[name] = now.at(name);
    }
    write_file_atomically(file_, json_text(record, 2) + "\n");
    return true;
  } catch (const Json::exception&) {  // missing, or written by another program
    return false;
  }
}

// The run's own error takes precedence. That of the check of a complete run is none of the run.
void RunRecord::on_exception(const std::exception& error) noexcept {
  if (started_.empty() || so_far_.info.already_complete) return;
  try {
    error_ = without_credentials(first_line(error));
    write(so_far_, "failed");
  } catch (const std::exception& failure) {
    log_warning(first_line(failure));
  }
}

void RunRecord::write(const RunReport& report, const std::string& state) const {
  Json json{{"state", state}};
  if (!error_.empty()) json["error"] = error_;
  json["started"] = started_;
  json["host"] = host_name();
  json["processor"] = cpu_model_name();
  json["usable_processors"] = origin_.processors;
  json["local_ranks"] = origin_.local_ranks > 0 ? Json(origin_.local_ranks) : Json();
  json["versions"] = origin_.versions;
  json["command"] = without_credentials(origin_.command);
  json["commands"] = Json::parse(commands_before_);
  json["commands"].push_back(
      {{"command", json["command"]},
       {"started", started_},
       {"first_epoch", report.info.first_epoch},
       {"first_step", report.info.first_step},
       {"last_epoch", report.epochs.empty() ? Json() : Json(report.epochs.back().epoch)},
       {"seconds", report.seconds_total}});
  json.update(Json::parse(report::to_json(report)));
  double seconds = 0;
  for (const Json& command : json["commands"]) {
    const double own = number_or_nan(command, "seconds");
    if (own > 0) seconds += own;
  }
  json["seconds_total"] = seconds;
  json["peak_rss_bytes"] = std::max(report.peak_rss_bytes, peak_before_);
  std::set<std::string> fractions = fractions_before_;
  for (const EpochReport& epoch : report.epochs) add_fractions(epoch.test, fractions);
  add_fractions(report.test, fractions);
  json["fractions"] = fractions;
  Json epochs = Json::parse(epochs_before_);
  for (Json& epoch : json.at("epochs")) epochs.push_back(std::move(epoch));
  json["epochs"] = std::move(epochs);
  write_file_atomically(file_, json_text(json, 2) + "\n");
}

}  // namespace lockstep
