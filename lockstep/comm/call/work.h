// The handle of an operation that is under way.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>

namespace lockstep {

/// Returned by the async_ form of every collective, by isend and irecv. The tensors must not be
/// read or written between the call and the end of wait(). Dropping the handle does not cancel the
/// operation, but its result may not arrive: what is left to do at the end (averages and types that
/// the transport lacks; tensors that are not contiguous, or on a GPU whose group works in host
/// memory) is done in wait() or is_completed().
///
/// The shared-memory backend has no thread of its own: it moves on whenever any rank's thread calls
/// into a group, so is_completed() also lends a hand.
class Work {
 public:
  virtual ~Work() = default;

  /// Blocks until the operation is complete on this rank. Throws TimeoutError at the deadline (the
  /// group's timeout where none is given), CommError when a peer died or the group was aborted.
  /// Over NCCL, where no timeout is given, it makes the current stream wait, as PyTorch does; if
  /// the operation then fails on the device, the group's next call throws.
  virtual void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) = 0;

  /// Makes what progress is possible without blocking and tells whether the operation has ended,
  /// well or with an error. Does not throw.
  virtual bool is_completed() = 0;

  /// Why the operation failed; null while it runs and when it ended well.
  virtual std::exception_ptr error() const = 0;

  /// The sender's rank of a completed receive; -1 for all other operations.
  virtual int source_rank() const { return -1; }
};

}  // namespace lockstep
