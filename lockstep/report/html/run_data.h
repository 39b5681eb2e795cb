// What a run's folder holds, for its page.
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

/// "data", "forward", "backward", "communication", "optimizer", "other".
const std::vector<std::string>& phase_names();

struct RunData {
  std::string name{};     ///< of the folder
  std::string subject{};  ///< recipe, strategy and loader: what may be compared by its ranks
  std::string state{};    ///< "running", "complete", "failed"
  std::string error{};
  std::string started{};
  std::string command{};
  std::vector<std::pair<std::string, std::string>> configuration{};
  int ranks = 1;          ///< times the devices of strategy dp
  double seconds = 0;     ///< of the whole run; 0: not known
  double peak_bytes = 0;  ///< of memory, the largest rank's; 0: not known
  std::vector<EpochData> epochs{};
  std::optional<RunFacts> facts{};  ///< where the run has a whole epoch
  std::optional<TracedRun> trace{};
  std::vector<RunPictureFile> pictures{};
};

/// Reads run.json and whatever lies beside it. DataError where that is missing or is not what
/// Lockstep writes.
RunData read_run_data(const std::filesystem::path& folder);

/// Images per second of the best epoch; 0 without an epoch.
double best_rate(const RunData& run);

}  // namespace lockstep::html
