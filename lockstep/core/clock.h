// Time: a monotonic clock, a stopwatch, and the deadline that every wait carries.
#pragma once

#include <algorithm>
#include <chrono>

#include <lockstep/core/export.h>

namespace lockstep {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Adds up the seconds between start() and stop().
class LOCKSTEP_API Stopwatch {
 public:
  void start() { start_ = Clock::now(); }
  void stop() { seconds_ += seconds_since(start_); }
  void reset() { seconds_ = 0; }
  double seconds() const { return seconds_; }

 private:
  Clock::time_point start_{};
  double seconds_ = 0;
};

/// Adds the lifetime of the scope to a stopwatch.
class LOCKSTEP_API StopwatchScope {
 public:
  explicit StopwatchScope(Stopwatch& watch) : watch_(watch) { watch_.start(); }
  ~StopwatchScope() { watch_.stop(); }
  StopwatchScope(const StopwatchScope&) = delete;
  StopwatchScope& operator=(const StopwatchScope&) = delete;

 private:
  Stopwatch& watch_;
};

/// Adds the duration of the scope, in seconds, to a number.
class LOCKSTEP_API SecondsScope {
 public:
  explicit SecondsScope(double& seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~SecondsScope() { seconds_ += seconds_since(start_); }
  SecondsScope(const SecondsScope&) = delete;
  SecondsScope& operator=(const SecondsScope&) = delete;

 private:
  double& seconds_;
  const Clock::time_point start_;
};

/// A point in time after which a wait gives up.
class LOCKSTEP_API Deadline {
 public:
  /// Timeouts are limited to a century, so that adding them to the current time cannot overflow.
  explicit Deadline(Milliseconds timeout)
      : at_(Clock::now() + std::min<Milliseconds>(timeout, std::chrono::hours(24 * 36525))) {}
  bool expired() const { return Clock::now() >= at_; }
  /// Time left, never negative.
  std::chrono::nanoseconds remaining() const {
    return std::max<std::chrono::nanoseconds>(at_ - Clock::now(), std::chrono::nanoseconds(0));
  }

 private:
  Clock::time_point at_;
};

}  // namespace lockstep
