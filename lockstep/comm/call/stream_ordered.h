// Work objects whose operation continues after wait().
#pragma once

#include <exception>
#include <functional>

namespace lockstep::comm {

/// Work of a backend whose wait() without a timeout makes a device stream wait instead of the
/// caller (see Backend::runs_on_stream()). Safe to use from several threads.
class StreamOrdered {
 public:
  virtual ~StreamOrdered() = default;

  /// Calls `listener` with null or the error once the operation has ended on the device, even if
  /// nobody waits for it. `listener` is called at once or later, on any thread, and must not throw.
  virtual void on_end(std::function<void(std::exception_ptr)> listener) = 0;
};

}  // namespace lockstep::comm
