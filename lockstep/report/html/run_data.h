// The contents of a run's folder or record, for its page.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/measuring/gpu_usage.h>
#include <lockstep/report/advice/run_facts.h>
#include <lockstep/report/html/run_pictures.h>
#include <lockstep/report/html/traced_steps.h>
#include <lockstep/train/task/listener.h>

namespace lockstep::html {

struct EpochData {
  double epoch = 0;
  double steps = 0;
  double steps_per_epoch = 0;  ///< steps of the whole epoch; 0: the same
  double steps_before = 0;     ///< steps of the epoch before the command that made this record
  double seconds = 0;
  std::optional<double> train_loss{};
  double images_per_second = 0;
  double processors = 0;  ///< processors kept busy per rank, mean over the ranks
  std::optional<GpuUsage> gpu{};
  std::vector<double> phases{};  ///< seconds, in the order of phase_names(), including "other"
  std::map<std::string, double> metrics{};  ///< results of the evaluation, without NaN

  /// Whether the times and the training loss are of a part of the epoch only, because the run was
  /// resumed or ended within it.
  bool is_partial() const { return steps < steps_per_epoch; }
  /// Whether the run ended within the epoch. If not, `metrics` are of the whole epoch.
  bool ends_within() const { return steps_before + steps < steps_per_epoch; }
};

/// "data" (excluding the wait for the first batch), "forward", "backward", "communication"
/// (excluding the next phase), "waits for a stage" (in a pipeline), "optimizer", "first batch",
/// "other".
const std::vector<std::string>& phase_names();

/// A command that started or resumed a run.
struct RunCommand {
  std::string command{};
  std::string started{};
  std::int64_t first_epoch = 1;
  std::int64_t first_step = 0;  ///< optimizer steps of that epoch that were done before
  std::optional<std::int64_t> last_epoch{};  ///< absent if it completed none of the run's epochs
};

struct RunData {
  std::string name{};     ///< name of the folder, or of the record without its extension
  std::string subject{};  ///< recipe, strategy and loader; equal in comparable runs
  std::string state{};    ///< "running", "complete", "interrupted", "failed"
  std::string error{};
  std::string started{};  ///< empty in a record of `lockstep train --json`
  std::string command{};  ///< empty in a record of `lockstep train --json`
  /// All commands of a resumed run, the oldest first; empty in a record that has only the last one.
  std::vector<RunCommand> commands{};
  std::vector<std::pair<std::string, std::string>> configuration{};
  std::string work{};  ///< work_name(): equal in runs whose speeds are compared
  int ranks = 1;       ///< with strategy dp its devices; with a pipeline in one process its threads
  std::int64_t global_batch = 0;
  double seconds = 0;     ///< time of all commands of the run; 0: unknown
  double peak_bytes = 0;  ///< memory of the rank that used most; 0: unknown
  std::optional<BestEvaluation> best{};
  std::vector<EpochData> epochs{};
  std::optional<report::RunFacts> facts{};  ///< if the run has a complete epoch
  std::optional<TracedRun> trace{};
  std::vector<RunPictureFile> pictures{};
};

/// Whether `file` is the record of a run: run.json, or the output of `lockstep train --json`.
bool holds_run_record(const std::filesystem::path& file);

/// Reads the record of a run and, if `run` is the run's folder or the run.json in it, the other
/// files in that folder. A run that has recorded "running", but whose folder no process has locked,
/// is "interrupted". Throws DataError if the record is missing or was not written by Lockstep.
RunData read_run_data(const std::filesystem::path& run);

/// Images per second in the best epoch; 0 without an epoch.
double best_rate(const RunData& run);

}  // namespace lockstep::html
