// What a run's folder or record holds, for its page.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/gpu_usage.h>
#include <lockstep/report/advice/run_facts.h>
#include <lockstep/report/html/run_pictures.h>
#include <lockstep/report/html/traced_steps.h>

namespace lockstep::html {

struct EpochData {
  double epoch = 0;
  double steps = 0;
  double seconds = 0;
  std::optional<double> train_loss{};
  double images_per_second = 0;
  double processors = 0;  ///< that a rank kept busy, the mean over the ranks
  std::optional<GpuUsage> gpu{};
  std::vector<double> phases{};  ///< seconds, as phase_names() has them, "other" included
  std::map<std::string, double> metrics{};  ///< of the evaluation, without what is no number
};

/// "data", "forward", "backward", "communication" (without the next), "waits for a stage" (of a
/// pipeline), "optimizer", "other".
const std::vector<std::string>& phase_names();

struct RunData {
  std::string name{};     ///< of the folder, or of the record without its end
  std::string subject{};  ///< recipe, strategy and loader: what may be compared by its ranks
  std::string state{};    ///< "running", "complete", "failed"
  std::string error{};
  std::string started{};  ///< empty in a record of `lockstep train --json`, and so is
  std::string command{};  ///< this
  std::vector<std::pair<std::string, std::string>> configuration{};
  int ranks = 1;          ///< times the devices of strategy dp
  double seconds = 0;     ///< of the whole run; 0: not known
  double peak_bytes = 0;  ///< of memory, the largest rank's; 0: not known
  std::vector<EpochData> epochs{};
  std::optional<RunFacts> facts{};  ///< where the run has a whole epoch
  std::optional<TracedRun> trace{};
  std::vector<RunPictureFile> pictures{};
};

/// Whether `file` holds the record of a run: run.json, or what `lockstep train --json` has written.
bool holds_run_record(const std::filesystem::path& file);

/// Reads the record of a run and, where `run` is the run's folder or the run.json in it, whatever
/// lies beside it. DataError where the record is missing or is not what Lockstep writes.
RunData read_run_data(const std::filesystem::path& run);

/// Images per second of the best epoch; 0 without an epoch.
double best_rate(const RunData& run);

}  // namespace lockstep::html
