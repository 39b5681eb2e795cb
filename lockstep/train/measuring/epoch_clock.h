// The time and processor use of an epoch's training, without interruptions.
#pragma once

#include <cmath>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/measuring/other_programs.h>

namespace lockstep::train {

/// Measures elapsed time and processor use. Use it on one thread only.
class EpochClock {
 public:
  /// In seconds. NaN if the kernel does not report the value.
  struct Use {
    double computed = 0;  ///< by all threads of this process
    double waited = 0;    ///< by this thread while ready to run but without a processor
    double busy = 0;      ///< by all programs; mean over the processors available to this thread
  };

  void start() { *this = EpochClock(); }
  double seconds() const { return seconds_since(start_) - paused_seconds_; }
  Use used() const {
    const Use now = use_until_now();
    return {.computed = now.computed - before_.computed,
            .waited = now.waited - before_.waited,
            .busy = now.busy - before_.busy};
  }

  /// Pauses the measurement while it lives. At most one may exist at a time.
  class Pause {
   public:
    explicit Pause(EpochClock& clock)
        : clock_(clock), seconds_(clock.seconds()), use_(clock.use_until_now()) {}
    ~Pause() {
      clock_.paused_seconds_ += clock_.seconds() - seconds_;
      const Use now = clock_.use_until_now();
      clock_.before_.computed += now.computed - use_.computed;
      clock_.before_.waited += now.waited - use_.waited;
      clock_.before_.busy += now.busy - use_.busy;
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    EpochClock& clock_;
    const double seconds_;
    const Use use_;
  };

 private:
  Use use_until_now() const {
    const double busy = busy_seconds(cpus_).value_or(std::nan(""));
    return {.computed = processor_seconds(),
            .waited = processor_wait_seconds().value_or(std::nan("")),
            .busy = busy / static_cast<double>(cpus_.size())};
  }

  std::vector<int> cpus_ = available_cpus();
  Clock::time_point start_ = Clock::now();
  Use before_ = use_until_now();  // includes pauses
  double paused_seconds_ = 0;
};

}  // namespace lockstep::train
