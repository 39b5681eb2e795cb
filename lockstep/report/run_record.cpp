#include <lockstep/report/run_record.h>

#include <array>
#include <ctime>
#include <fstream>
#include <iterator>
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

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

// The epochs in the record before `first`. An unreadable record has none, since the run does not
// resume from it.
std::string epochs_before(const std::filesystem::path& file, std::int64_t first) {
  Json kept = Json::array();
  try {
    std::ifstream stream(file);
    const Json record = Json::parse(stream);
    for (const Json& epoch : record.at("epochs")) {
      if (epoch.at("epoch").get<std::int64_t>() < first) kept.push_back(epoch);
    }
  } catch (const Json::exception&) {
    kept = Json::array();
  }
  return kept.dump();
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

std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(shell_word(word_without_credentials(word)));
  }
  return join(words, " ");
}

RunRecord::RunRecord(const std::filesystem::path& folder, RunOrigin origin, bool goes_on)
    : file_(folder / "run.json"), origin_(std::move(origin)), goes_on_(goes_on) {}

void RunRecord::on_run_begin(const RunInfo& info) {
  started_ = utc_now();
  if (goes_on_) {
    epochs_before_ = epochs_before(file_, info.first_epoch);
  } else {
    std::error_code ignored;  // a trace of another run would pass for one of this run
    std::filesystem::remove(file_.parent_path() / "trace.json", ignored);
  }
  so_far_.info = info;
  write(so_far_, "running");
}

void RunRecord::on_epoch_end(const EpochReport& report) {
  so_far_.epochs.push_back(report);
  write(so_far_, "running");
}

void RunRecord::on_run_end(const RunReport& report) { write(report, "complete"); }

// The run's own error takes precedence.
void RunRecord::on_exception(const std::exception& error) noexcept {
  if (started_.empty()) return;
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
  json["local_ranks"] = origin_.local_ranks;
  json["versions"] = origin_.versions;
  json["command"] = without_credentials(origin_.command);
  json.update(Json::parse(report::to_json(report)));
  Json epochs = Json::parse(epochs_before_);
  for (Json& epoch : json.at("epochs")) epochs.push_back(std::move(epoch));
  json["epochs"] = std::move(epochs);
  write_file_atomically(file_, json_text(json, 2) + "\n");
}

}  // namespace lockstep
