// An operation that a library runs in a stream of a device.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include <lockstep/comm/backends/nccl/stream_context.h>
#include <lockstep/comm/call/outcome.h>
#include <lockstep/core/clock.h>

namespace lockstep::nccl {

/// Tracks the operation from its start until its outcome on the device is known. Safe to use from
/// several threads.
class StreamOperation {
 public:
  using Listener = std::function<void(std::exception_ptr)>;

  StreamOperation(WorkHandle handle, Call call, comm::Watchdog::Ticket ticket)
      : handle_(std::move(handle)), call_(std::move(call)), ticket_(ticket) {}

  c10d::Work& library_work() const { return *handle_; }
  const Call& call() const { return call_; }
  comm::Watchdog::Ticket ticket() const { return ticket_; }
  Clock::time_point start() const { return start_; }

  /// Ends the operation, successfully if `error` is null. Later calls have no effect.
  void end(std::exception_ptr error);
  bool has_ended() const;
  std::exception_ptr error() const;
  /// Calls `listener` with null or the error when the operation ends, on any thread, or at once if
  /// it has ended. `listener` must not throw.
  void on_end(Listener listener);

 private:
  const WorkHandle handle_;
  const Call call_;
  const comm::Watchdog::Ticket ticket_;
  const Clock::time_point start_ = Clock::now();
  mutable std::mutex mutex_;  // guards the members below
  comm::Outcome outcome_;
  std::vector<Listener> listeners_;
};

}  // namespace lockstep::nccl
