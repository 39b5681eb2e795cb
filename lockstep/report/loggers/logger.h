// The interface of experiment loggers, behind `--logger` and for user programs.
//
//   auto loggers = make_loggers({"csv", "tensorboard"}, {.directory = "logs", .run_name = "gan"});
//   for (const auto& logger : loggers) {
//     logger->log_scalars(moment_at(step), {{"generator/loss", g}, {"critic/loss", c}});
//   }
//   for (const auto& logger : loggers) logger->finish(true);
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/core/export.h>
#include <lockstep/formats/logged_values.h>

namespace lockstep {

/// Receives the values that a run logs. Values are doubles; steps count optimizer steps from 1 over
/// all epochs and must not decrease from call to call. Names are paths like "train/loss".
///
/// Use a logger from one thread at a time. Once a call returns, other programs can read its values,
/// even if the process is then killed, with two exceptions documented by the loggers concerned: a
/// row that waits for its last values, and values sent over a network. A call costs a few
/// microseconds and waits for no peer.
///
/// Throws DataError if a file cannot be written. After that nothing may be logged, and finish() may
/// throw again; values already written stay readable. The destructor closes files without waiting
/// for other processes; without finish() the run counts as aborted if the format supports that.
class LOCKSTEP_API Logger {
 public:
  virtual ~Logger() = default;

  /// Where to find the output: a file, a folder or an address.
  virtual std::string place() const = 0;

  /// Called once, before all values.
  virtual void log_hyper_parameters(std::span<const HyperParameter> parameters) = 0;
  virtual void log_scalars(const LogMoment& moment, std::span<const NamedValue> values) = 0;
  void log_scalars(const LogMoment& moment, std::initializer_list<NamedValue> values) {
    log_scalars(moment, std::span<const NamedValue>(values.begin(), values.size()));
  }
  /// Does nothing if the format has no histograms.
  virtual void log_histogram(const LogMoment&, std::string_view /*name*/, const Histogram&) {}
  /// Whether log_image() keeps images: if no logger does, images need not be made.
  virtual bool takes_images() const { return false; }
  /// Does nothing if the format has no images.
  virtual void log_image(const LogMoment&, std::string_view /*name*/, const LoggedImage&) {}
  /// Does nothing if the format has no tables.
  virtual void log_table(const LogMoment&, std::string_view /*name*/, const LoggedTable&) {}
  /// Writes data that is written only occasionally; called at the end of an epoch.
  virtual void flush() {}
  /// Ends the run as complete or failed; nothing may be logged afterwards.
  virtual void finish(bool /*success*/) {}
};

}  // namespace lockstep
