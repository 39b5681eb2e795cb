// Works whose operation goes on after wait().
#pragma once

#include <exception>
#include <functional>

namespace lockstep {

/// A Work of a backend whose wait() without a timeout makes a stream of a device wait, not the
/// caller (see Backend::runs_on_stream()). Safe to use from several threads.
class StreamOrdered {
 public:
  virtual ~StreamOrdered() = default;

  /// Calls `listener` with null or the error once the operation has ended on the device, also where
  /// nobody waits for it: at once or later, on any thread. `listener` must not throw.
  virtual void on_end(std::function<void(std::exception_ptr)> listener) = 0;
};

}  // namespace lockstep
