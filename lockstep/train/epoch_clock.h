// What the training of an epoch takes, without what interrupts it.
#pragma once

#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>

namespace lockstep {

/// Counts the time that passes and the processor time of this process. For one thread.
class EpochClock {
 public:
  void start() { *this = EpochClock(); }
  double seconds() const { return seconds_since(start_) - paused_seconds_; }
  double processor_seconds() const {
    return lockstep::processor_seconds() - processor_start_ - paused_processor_seconds_;
  }

  /// While it lives, nothing is counted. One at a time.
  class Pause {
   public:
    explicit Pause(EpochClock& clock)
        : clock_(clock), seconds_(clock.seconds()), processor_(clock.processor_seconds()) {}
    ~Pause() {
      clock_.paused_seconds_ += clock_.seconds() - seconds_;
      clock_.paused_processor_seconds_ += clock_.processor_seconds() - processor_;
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    EpochClock& clock_;
    const double seconds_;
    const double processor_;
  };

 private:
  Clock::time_point start_ = Clock::now();
  double processor_start_ = lockstep::processor_seconds();
  double paused_seconds_ = 0;
  double paused_processor_seconds_ = 0;
};

}  // namespace lockstep
