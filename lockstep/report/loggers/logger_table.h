// The table of loggers: their names, and how to make them. Programs check and show it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/report/loggers/logger.h>
#include <lockstep/report/loggers/mlflow_client.h>
#include <lockstep/report/loggers/run_folder.h>

namespace lockstep {

/// What all loggers of a run share.
struct LoggerSetup {
  /// The loggers write into a folder of the run's own below it.
  std::filesystem::path directory{};
  std::string run_name = "run";      ///< the beginning of that folder's name; the recipe's name
  std::string project = "lockstep";  ///< W&B's project
  MlflowServer mlflow{};             ///< for the logger mlflow alone
};

/// "csv", "jsonl", "tensorboard", "wandb", "mlflow".
const std::vector<std::string>& logger_names();

/// ConfigError, which begins with `what`, for an unknown name (it lists the known ones) and one
/// that is given twice.
void check_loggers(const std::string& what, const std::vector<std::string>& names);

/// Makes the loggers of one run, which share a name and, below `setup.directory`, a folder
/// RUN_NAME-DATE_TIME-ID; W&B's is wandb/offline-run-DATE_TIME-ID, as `wandb sync` looks for it.
/// Throws as check_loggers(), DataError where a folder or file cannot be created, and ConfigError
/// where MLflow's address cannot be or the module for HTTP is missing.
std::vector<std::unique_ptr<Logger>> make_loggers(const std::vector<std::string>& names,
                                                  const LoggerSetup& setup);

}  // namespace lockstep
