// The logger writes one line per message to a replaceable sink, prefixed with the rank.
//
//   log_info("store listens on ", address);   // "[rank 1] store listens on 127.0.0.1:4711"
//
// The level comes from LOCKSTEP_LOG_LEVEL (debug, info, warning, error); the default is warning.
// Safe to call from any thread.
#pragma once

#include <functional>
#include <string>

#include <lockstep/core/strings.h>

namespace lockstep {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Receives every message that passes the level, complete and without a newline.
using LogSink = std::function<void(LogLevel, const std::string&)>;

void set_log_rank(int rank);  ///< Negative: no prefix.
void set_log_level(LogLevel level);
void set_log_sink(LogSink sink);  ///< Null restores the default, standard error.
bool log_enabled(LogLevel level);
void log_message(LogLevel level, const std::string& message);

template <class... Values>
void log_at(LogLevel level, const Values&... values) {
  if (log_enabled(level)) log_message(level, str(values...));
}
template <class... Values>
void log_debug(const Values&... values) {
  log_at(LogLevel::kDebug, values...);
}
template <class... Values>
void log_info(const Values&... values) {
  log_at(LogLevel::kInfo, values...);
}
template <class... Values>
void log_warning(const Values&... values) {
  log_at(LogLevel::kWarning, values...);
}
template <class... Values>
void log_error(const Values&... values) {
  log_at(LogLevel::kError, values...);
}

}  // namespace lockstep
