// Logs what a start-up is waiting for.
#pragma once

#include <chrono>
#include <string>

#include <lockstep/core/clock.h>
#include <lockstep/core/log.h>

namespace lockstep::comm {

/// Logs a warning once a wait has taken 5 s, and again each time that duration has doubled. Not
/// thread-safe.
class WaitNotice {
 public:
  /// Call it repeatedly while waiting. `words()` describes the wait, as in "rank 0 waits for rank
  /// 3".
  template <class Words>
  void look(std::chrono::milliseconds timeout, const Words& words) {
    const double seconds = seconds_since(start_);
    if (seconds < next_seconds_) return;
    next_seconds_ = 2 * seconds;
    log_warning(words(), ", for ", static_cast<int>(seconds), " s now (the limit is ",
                static_cast<double>(timeout.count()) / 1e3, " s)");
  }

 private:
  const Clock::time_point start_ = Clock::now();
  double next_seconds_ = 5;
};

}  // namespace lockstep::comm
