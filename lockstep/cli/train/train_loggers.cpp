#include <lockstep/cli/train/train_loggers.h>

#include <charconv>
#include <cstddef>
#include <iostream>
#include <utility>

#include <lockstep/core/strings.h>
#include <lockstep/report/loggers/logger_table.h>
#include <lockstep/report/run_record.h>

namespace lockstep::cli {
namespace {

// Parses "0.1" as a number and "true" as a flag; other texts stay texts.
HyperParameter parameter_from_text(const std::string& name, const std::string& text) {
  if (text == "true" || text == "false") return {name, text == "true"};
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return {name, number};
  return {name, text};
}

std::vector<std::unique_ptr<Logger>> open_loggers(const TrainSettings& settings) {
  auto loggers = make_loggers(settings.loggers, settings.logger_setup);
  for (std::size_t i = 0; i < loggers.size(); ++i) {
    // In one piece, because the launcher may write about a signal at the same time.
    std::cerr << lockstep::str("note: logger ", settings.loggers[i], ": ", loggers[i]->place(),
                               '\n');
  }
  return loggers;
}

}  // namespace

std::unique_ptr<LoggingListener> make_logging_listener(const TrainSettings& settings) {
  return LoggingListener::opened_by([&settings] { return open_loggers(settings); },
                                    logged_settings(settings));
}

std::vector<HyperParameter> logged_settings(const TrainSettings& settings) {
  std::vector<HyperParameter> all;
  for (const auto& [name, text] : to_settings(settings.trainer.optimizer)) {
    all.push_back(parameter_from_text(name, text));
  }
  all.push_back({"schedule", to_string(settings.trainer.schedule, settings.trainer.max_epochs)});
  if (settings.trainer.gradient_clip_norm) {
    all.push_back({"gradient_clip_norm", *settings.trainer.gradient_clip_norm});
  }
  if (settings.trainer.gradient_clip_value) {
    all.push_back({"gradient_clip_value", *settings.trainer.gradient_clip_value});
  }
  all.push_back({"seed", static_cast<std::int64_t>(settings.seed)});
  all.push_back({"command", command_line()});
  return all;
}

}  // namespace lockstep::cli
