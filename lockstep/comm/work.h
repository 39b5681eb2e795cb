// The handle of a collective that is under way.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

namespace lockstep {

/// Returned by the async_ form of every collective. The tensor must not be read or written between
/// the call and the return of wait(). Dropping the handle does not cancel the operation.
///
/// The shared-memory backend has no thread of its own: it moves on whenever any rank's thread calls
/// into the group, so is_completed() also lends a hand.
class Work {
 public:
  virtual ~Work() = default;

  /// Blocks until the operation is complete on this rank. Throws TimeoutError at the deadline (the
  /// group's timeout where none is given), CommError when a peer died or the group was aborted. On a
  /// CUDA tensor it makes the current stream wait, as PyTorch does.
  virtual void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) = 0;

  /// Makes what progress is possible without blocking and tells whether the operation is complete.
  virtual bool is_completed() = 0;
};

}  // namespace lockstep
