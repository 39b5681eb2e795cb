// The experiment loggers of `lockstep train`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/cli/train/train_settings.h>
#include <lockstep/report/loggers/logging_listener.h>

namespace lockstep {

/// Makes the loggers that --logger names, of which there must be one. Opens their files, below
/// --log-dir or --out, and says on standard error where they are. DataError where they cannot be
/// created, ConfigError where a module is missing.
std::unique_ptr<LoggingListener> make_logging_listener(const TrainSettings& settings);

/// The settings of a run that the Trainer does not tell its listeners.
std::vector<HyperParameter> logged_settings(const TrainSettings& settings);

}  // namespace lockstep
