// Lets a run save when a signal asks its process to end.
#pragma once

#include <chrono>
#include <csignal>

#include <lockstep/train/stop_request.h>

namespace lockstep::cli {

/// While this object lives, the first SIGINT or SIGTERM does not end the process, but sets a
/// StopRequest. A signal that the process ignores stays ignored. Only one such object may exist at
/// a time.
class StopOnSignal {
 public:
  struct Options {
    /// Whether a launcher of this program supervises the process: it ends the process at a second
    /// request or when the time is over, so that the process itself ignores all further signals,
    /// for the rest of its life. Otherwise a second request (launch::is_second_request()) ends the
    /// process by the signal's default action, and so does the end of `patience`.
    bool supervised = false;
    bool speaks = false;                   ///< whether to print lines about the signals
    std::chrono::milliseconds patience{};  ///< time to save; rounded up to seconds
  };

  /// `request` must outlive this object.
  StopOnSignal(StopRequest& request, const Options& options);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[2] = {};
  struct sigaction alarm_before_ = {};
};

}  // namespace lockstep::cli
