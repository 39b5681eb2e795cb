// The experiment loggers of `lockstep train`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/cli/train/train_settings.h>
#include <lockstep/report/loggers/logging_listener.h>

namespace lockstep::cli {

/// Makes the loggers that --logger names; there must be at least one. Opens their files, below
/// --log-dir or --out, and reports the locations on standard error. Throws DataError if the files
/// cannot be created, and ConfigError if a module is missing.
std::unique_ptr<LoggingListener> make_logging_listener(const TrainSettings& settings);

/// The settings of a run, as far as the Trainer does not itself report them to its listeners.
std::vector<HyperParameter> logged_settings(const TrainSettings& settings);

}  // namespace lockstep::cli
