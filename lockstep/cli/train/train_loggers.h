// The experiment loggers of `lockstep train`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/cli/train/train_settings.h>
#include <lockstep/report/loggers/logging_listener.h>

namespace lockstep::cli {

/// Passes the run's events to the loggers that --logger names; there must be at least one. When the
/// run begins, unless it was already complete, it opens their files, below --log-dir or --out, and
/// reports the locations on standard error. It then throws DataError if the files cannot be
/// created, and ConfigError if a module is missing. `settings` must outlive it.
std::unique_ptr<LoggingListener> make_logging_listener(const TrainSettings& settings);

/// The settings of a run, as far as the Trainer does not itself report them to its listeners.
std::vector<HyperParameter> logged_settings(const TrainSettings& settings);

}  // namespace lockstep::cli
