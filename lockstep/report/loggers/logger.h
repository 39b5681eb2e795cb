// What an experiment logger is: the interface behind `--logger`, for programs of your own, too.
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

#include <lockstep/formats/logged_values.h>

namespace lockstep {

/// Receives what a run wants to have kept. Values are doubles; steps count optimizer steps from 1
/// over all epochs and must not descend from call to call. Names are paths like "train/loss".
///
/// For one thread at a time. What a call logged can be read by others when it returns, even if the
/// process is killed then, with two exceptions that the loggers concerned state: a row that waits
/// for its last values, and values that travel over a network. A call costs a few microseconds and
/// waits for no peer.
///
/// DataError when a file cannot be written. After that nothing may be logged, and finish() may
/// throw again; what was written stays readable. The destructor closes files and waits for nobody;
/// without finish() the run counts as broken off where the format knows the difference.
class Logger {
 public:
  virtual ~Logger() = default;

  /// Where people find what it writes: a file, a folder or an address.
  virtual std::string place() const = 0;

  /// Once, before all values.
  virtual void log_hyper_parameters(std::span<const HyperParameter> parameters) = 0;
  virtual void log_scalars(const LogMoment& moment, std::span<const NamedValue> values) = 0;
  void log_scalars(const LogMoment& moment, std::initializer_list<NamedValue> values) {
    log_scalars(moment, std::span<const NamedValue>(values.begin(), values.size()));
  }
  /// Does nothing where the format has no histograms.
  virtual void log_histogram(const LogMoment&, std::string_view /*name*/, const Histogram&) {}
  /// Whether log_image() keeps images: whoever has none other need not make them.
  virtual bool takes_images() const { return false; }
  /// Does nothing where the format has no images.
  virtual void log_image(const LogMoment&, std::string_view /*name*/, const LoggedImage&) {}
  /// Does nothing where the format has no tables.
  virtual void log_table(const LogMoment&, std::string_view /*name*/, const LoggedTable&) {}
  /// A good moment to write what is only worth writing now and then: the end of an epoch.
  virtual void flush() {}
  /// The run is over; nothing may be logged after it.
  virtual void finish(bool /*success*/) {}
};

}  // namespace lockstep
