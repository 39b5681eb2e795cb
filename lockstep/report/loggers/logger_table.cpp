#include <lockstep/report/loggers/logger_table.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/core/suggestion.h>
#include <lockstep/report/loggers/csv_logger.h>
#include <lockstep/report/loggers/jsonl_logger.h>
#include <lockstep/report/loggers/mlflow_logger.h>
#include <lockstep/report/loggers/run_folder.h>
#include <lockstep/report/loggers/tensorboard_logger.h>
#include <lockstep/report/loggers/wandb_logger.h>

namespace lockstep {
namespace {

// A run that starts now.
struct LoggedRun {
  const LoggerSetup& setup;
  report::RunName name;

  std::string full_name() const { return str(setup.run_name, '-', name.date_time, '-', name.id); }
  std::filesystem::path folder() const {
    return report::run_folder(setup.directory, setup.run_name, name);
  }
  std::filesystem::path made_folder() const {
    std::filesystem::path path = folder();
    report::make_folder(path);
    return path;
  }
};

using MakeLogger = std::unique_ptr<Logger> (*)(const LoggedRun& run);

const detail::NamedValues<MakeLogger>& named_loggers() {
  static const detail::NamedValues<MakeLogger> all = {
      {"csv",
       [](const LoggedRun& run) -> std::unique_ptr<Logger> {
         return std::make_unique<report::CsvLogger>(run.made_folder());
       }},
      {"jsonl",
       [](const LoggedRun& run) -> std::unique_ptr<Logger> {
         return std::make_unique<report::JsonlLogger>(run.made_folder());
       }},
      {"tensorboard",
       [](const LoggedRun& run) -> std::unique_ptr<Logger> {
         return std::make_unique<report::TensorBoardLogger>(run.made_folder(), run.full_name());
       }},
      {"wandb",
       [](const LoggedRun& run) -> std::unique_ptr<Logger> {
         return std::make_unique<report::WandbLogger>(
             report::WandbLoggerOptions{.directory = run.setup.directory,
                                        .project = run.setup.project,
                                        .display_name = run.full_name(),
                                        .run = run.name});
       }},
      {"mlflow",
       [](const LoggedRun& run) -> std::unique_ptr<Logger> {
         return std::make_unique<report::MlflowLogger>(report::MlflowLoggerOptions{
             .server = run.setup.mlflow, .run_name = run.full_name(), .folder = run.folder()});
       }},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& logger_names() { return named_loggers().names(); }

void check_loggers(const std::string& what, const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::ranges::find(logger_names(), *name) == logger_names().end()) {
      throw ConfigError(str(what, ": expected one or more of ", join(logger_names()), "; got '",
                            *name, "'", did_you_mean(*name, logger_names())));
    }
    if (std::find(names.begin(), name, *name) != name) {
      throw ConfigError(str(what, " names ", *name, " twice"));
    }
  }
}

std::vector<std::unique_ptr<Logger>> make_loggers(const std::vector<std::string>& names,
                                                  const LoggerSetup& setup) {
  check_loggers("make_loggers: names", names);
  const LoggedRun run{.setup = setup, .name = report::new_run_name()};
  std::vector<std::unique_ptr<Logger>> loggers;
  for (const std::string& name : names) {
    loggers.push_back(named_loggers().value_of("make_loggers", "names", name)(run));
  }
  return loggers;
}

}  // namespace lockstep
