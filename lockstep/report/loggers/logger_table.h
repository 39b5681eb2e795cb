// The table of loggers: their names, and how to make them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/report/loggers/logger.h>
#include <lockstep/report/loggers/mlflow_server.h>

namespace lockstep {

/// Settings common to all loggers of a run.
struct LOCKSTEP_API LoggerSetup {
  /// Parent of the run's own folder, into which the loggers write.
  std::filesystem::path directory{};
  std::string run_name = "run";      ///< prefix of that folder's name, such as the recipe's name
  std::string project = "lockstep";  ///< W&B's project
  MlflowServer mlflow{};             ///< for the logger mlflow only
};

/// "csv", "jsonl", "tensorboard", "wandb", "mlflow".
LOCKSTEP_API const std::vector<std::string>& logger_names();

/// Throws a ConfigError that begins with `what` if a name is unknown or repeated. For an unknown
/// name it lists the known ones.
LOCKSTEP_API void check_loggers(const std::string& what, const std::vector<std::string>& names);

/// Makes the loggers of one run, which share a name and, below `setup.directory`, a folder
/// RUN_NAME-DATE_TIME-ID. W&B's folder is wandb/offline-run-DATE_TIME-ID, where `wandb sync` looks
/// for it. Throws ConfigError like check_loggers() and if MLflow's address is invalid or the HTTP
/// module is missing; DataError if a folder or file cannot be created.
LOCKSTEP_API std::vector<std::unique_ptr<Logger>> make_loggers(
    const std::vector<std::string>& names, const LoggerSetup& setup);

}  // namespace lockstep
