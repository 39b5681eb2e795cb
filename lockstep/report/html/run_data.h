// What a run's folder holds, for its page.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/report/advice/run_facts.h>
#include <lockstep/report/html/traced_steps.h>

namespace lockstep::html {

struct EpochData {
  double epoch = 0;
  double seconds = 0;
  double train_loss = 0;
  double images_per_second = 0;
  double processors = 0;  ///< that a rank kept busy
  std::optional<double> gpu_utilisation{};
  std::vector<double> phases{};             ///< seconds, as phase_names() has them, "other" included
  std::map<std::string, double> metrics{};  ///< of the evaluation, without what is no number
};

/// "data", "forward", "backward", "communication", "optimizer", "other".
const std::vector<std::string>& phase_names();

struct RunData {
  std::string name{};  ///< of the folder
  std::string state{};
  std::string error{};
  std::string started{};
  std::string command{};
  std::vector<std::pair<std::string, std::string>> configuration{};
  int ranks = 1;
  std::vector<EpochData> epochs{};
  std::optional<RunFacts> facts{};   ///< where the run has a whole epoch
  std::optional<TracedRun> trace{};
  std::string picture{};             ///< reconstructions.png, as bytes; empty where there is none
};

/// Reads run.json and whatever lies beside it. DataError where that is missing or is not what Lockstep
/// writes.
RunData read_run_data(const std::filesystem::path& folder);

}  // namespace lockstep::html
