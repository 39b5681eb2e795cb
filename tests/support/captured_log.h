// Captures the library's log for a test.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <lockstep/core/log.h>

namespace lockstep::testing_support {

/// Captures all lines that any thread logs during its lifetime.
class CapturedLog {
 public:
  CapturedLog() {
    set_log_sink([this](LogLevel, const std::string& line) {
      const std::scoped_lock lock(mutex_);
      lines_.push_back(line);
    });
  }
  ~CapturedLog() { set_log_sink(nullptr); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::vector<std::string> lines() const {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace lockstep::testing_support
