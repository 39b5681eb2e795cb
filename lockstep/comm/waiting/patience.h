// How a rank waits until a peer has done its part: it spins, then yields, then sleeps.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include <lockstep/comm/waiting/progress.h>
#include <lockstep/core/clock.h>

namespace lockstep::shm {

struct PatienceOptions {
  /// How long to poll without yielding the processor. Zero when there are more ranks than
  /// processors, because spinning would take processor time from the awaited rank.
  std::chrono::microseconds spin{200};
  /// How long to poll while yielding to other threads afterwards. Switching between two ranks by
  /// yielding costs one microsecond; by sleep and wake-up it costs several.
  std::chrono::microseconds yield{0};
};

/// The state of one wait. Call `pause()` while nothing makes progress: it spins, then yields, then
/// returns false when it is time to sleep (sleep_on).
class Patience {
 public:
  Patience(const PatienceOptions& options, std::chrono::nanoseconds at_most);
  bool pause();
  /// Call after progress: starts again with spinning.
  void reset();

 private:
  PatienceOptions options_;
  std::chrono::nanoseconds at_most_;
  Clock::time_point start_{};
  unsigned looks_ = 0;
};

/// Sleeps until one of `words` differs from the value seen, or `timeout` expires.
void sleep_on(std::span<const comm::AwaitedWord> words, std::chrono::nanoseconds timeout);

}  // namespace lockstep::shm
