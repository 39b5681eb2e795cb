// The time that a device spent in the phases of a run. Internal to lockstep/train.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include <torch/types.h>

#include <lockstep/core/clock.h>
#include <lockstep/parallel/base/stream_clock.h>

namespace lockstep::train {

/// While it lives, PhaseSecondsScopes of the thread that made it measure the device's current
/// stream instead of the host, which only submits work. An interval lasts from the completion of
/// the work queued when the scope began to the completion of the work queued when it ended. The
/// host does not wait until settle(). Each thread may have one, and only that thread may use it.
class PhaseTimer {
 public:
  /// `device` must not be a CPU.
  explicit PhaseTimer(torch::Device device);
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  /// The calling thread's timer; null if there is none or if a graph is being captured, because
  /// moments in a captured graph have no times.
  static PhaseTimer* current();

  detail::StreamClock::Moment record() { return clock_.record(); }
  /// Adds the time from `begin` until now to `seconds` at the next settle(); `seconds` must live
  /// until then.
  void add(detail::StreamClock::Moment begin, double& seconds);

  /// Waits for all work on the current stream and adds the pending intervals.
  void settle();
  /// Intervals not yet added.
  std::size_t pending() const { return intervals_.size(); }

 private:
  struct Interval {
    detail::StreamClock::Moment begin;
    detail::StreamClock::Moment end;
    double* seconds;
  };
  void add_oldest();

  detail::StreamClock clock_;
  std::deque<Interval> intervals_;
};

/// Adds its lifetime to `seconds`: as soon as it ends, by the host's clock, or, if the thread has a
/// PhaseTimer, when that is settled.
class PhaseSecondsScope {
 public:
  explicit PhaseSecondsScope(double& seconds);
  ~PhaseSecondsScope();
  PhaseSecondsScope(const PhaseSecondsScope&) = delete;
  PhaseSecondsScope& operator=(const PhaseSecondsScope&) = delete;

 private:
  double& seconds_;
  PhaseTimer* const timer_;
  std::optional<detail::StreamClock::Moment> begin_;  // if there is a timer
  Clock::time_point start_{};                         // if there is none
};

}  // namespace lockstep::train
