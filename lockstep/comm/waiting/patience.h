// How a rank passes the time until a peer has done its part.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include <lockstep/comm/waiting/progress.h>
#include <lockstep/core/clock.h>

namespace lockstep::shm {

struct PatienceOptions {
  /// First look again and again without giving the processor away. Zero when more ranks than
  /// processors share them: it would steal the time of the one that is waited for.
  std::chrono::microseconds spin{200};
  /// Then give way to whoever wants to run, and look again. A switch between two ranks costs a
  /// microsecond that way, through sleep and wake-up several.
  std::chrono::microseconds yield{0};
};

/// One wait. Call `pause()` as long as nothing moves: it spins, then yields, then returns false,
/// which means that it is time to sleep (sleep_on).
class Patience {
 public:
  Patience(const PatienceOptions& options, std::chrono::nanoseconds at_most);
  bool pause();
  /// Something moved: be impatient again.
  void reset();

 private:
  PatienceOptions options_;
  std::chrono::nanoseconds at_most_;
  Clock::time_point start_{};
  unsigned looks_ = 0;
};

/// Sleeps until one of `words` has another value than was seen, or `timeout` is over.
void sleep_on(std::span<const AwaitedWord> words, std::chrono::nanoseconds timeout);

}  // namespace lockstep::shm
