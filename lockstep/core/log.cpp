#include <lockstep/core/log.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include <lockstep/core/credentials.h>
#include <lockstep/core/environment.h>

namespace lockstep {
namespace {

LogLevel level_from_environment() {
  const std::string name = environment_string("LOCKSTEP_LOG_LEVEL").value_or("warning");
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "error") return LogLevel::kError;
  return LogLevel::kWarning;
}

struct Logger {
  std::atomic<int> rank{-1};
  std::atomic<LogLevel> level{level_from_environment()};
  std::mutex mutex;
  LogSink sink;
};

Logger& logger() {
  static Logger instance;
  return instance;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "";
}

}  // namespace

void set_log_rank(int rank) { logger().rank = rank; }
void set_log_level(LogLevel level) { logger().level = level; }
void set_log_sink(LogSink sink) {
  const std::scoped_lock lock(logger().mutex);
  logger().sink = std::move(sink);
}
bool log_enabled(LogLevel level) { return level >= logger().level.load(); }

void log_message(LogLevel level, const std::string& message) {
  const int rank = logger().rank.load();
  const std::string text = without_credentials(message);  // addresses may have passwords
  const std::string line = rank < 0 ? str(level_name(level), ": ", text)
                                    : str("[rank ", rank, "] ", level_name(level), ": ", text);
  const std::scoped_lock lock(logger().mutex);
  if (logger().sink) {
    logger().sink(level, line);
  } else {
    // One write per line, so that lines of several ranks do not mix.
    std::fputs((line + "\n").c_str(), stderr);
  }
}

}  // namespace lockstep
