// How long a device worked on the phases of a run. Internal to the room.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include <torch/types.h>

#include <lockstep/core/clock.h>
#include <lockstep/parallel/base/stream_clock.h>

namespace lockstep {

/// While it lives, PhaseSeconds scopes of the thread that made it measure the device's current
/// stream in place of the host, which only hands work over: an interval is from the end of what the
/// stream held when the scope began to the end of what it held when the scope ended. The host does
/// not wait until settle(). One at a time on a thread; belongs to that thread.
class PhaseTimer {
 public:
  /// `device` is no CPU.
  explicit PhaseTimer(torch::Device device);
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  /// That of the calling thread, if there is one and nothing is captured into a graph, where no
  /// moment has a time.
  static PhaseTimer* current();

  StreamClock::Moment record() { return clock_.record(); }
  /// From `begin` until now is to be added to `seconds`, which must live until settle().
  void add(StreamClock::Moment begin, double& seconds);

  /// Waits until the device has done all that the current stream holds, and adds what is to be
  /// added.
  void settle();
  /// Intervals that are still to be added.
  std::size_t pending() const { return intervals_.size(); }

 private:
  struct Interval {
    StreamClock::Moment begin;
    StreamClock::Moment end;
    double* seconds;
  };
  void add_oldest();

  StreamClock clock_;
  std::deque<Interval> intervals_;
};

/// Adds its lifetime to a number: at once where the host's time counts, else when the thread's
/// PhaseTimer is settled.
class PhaseSecondsScope {
 public:
  explicit PhaseSecondsScope(double& seconds);
  ~PhaseSecondsScope();
  PhaseSecondsScope(const PhaseSecondsScope&) = delete;
  PhaseSecondsScope& operator=(const PhaseSecondsScope&) = delete;

 private:
  double& seconds_;
  PhaseTimer* const timer_;
  std::optional<StreamClock::Moment> begin_;  // with a timer
  Clock::time_point start_{};                 // without
};

}  // namespace lockstep
