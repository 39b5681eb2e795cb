// A request to end a run early, in such a way that it can be resumed.
//
//   static lockstep::StopRequest stop;
//   std::signal(SIGTERM, [](int signal) { stop.request(signal); });
//   lockstep::Trainer trainer({.stop_request = &stop, .checkpoints = {.directory = "run"}}, ...);
#pragma once

#include <atomic>

#include <lockstep/core/export.h>

namespace lockstep {

/// A flag that TrainerOptions::stop_request reads. Any thread may call its functions, and so may a
/// signal handler. A request remains until clear().
class LOCKSTEP_API StopRequest {
 public:
  StopRequest() = default;
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// Asks the run to stop. `signal` is the number of the signal that is the reason, which the
  /// run's report names, or 0. The first request wins.
  void request(int signal = 0) noexcept {
    int none = kNone;
    state_.compare_exchange_strong(none, signal);
  }
  bool requested() const noexcept { return state_.load() != kNone; }
  /// The signal passed to request(); 0 if there was none, or no request.
  int signal() const noexcept {
    const int state = state_.load();
    return state == kNone ? 0 : state;
  }
  void clear() noexcept { state_.store(kNone); }

 private:
  static constexpr int kNone = -1;
  static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait for a lock");

  std::atomic<int> state_{kNone};
};

}  // namespace lockstep
