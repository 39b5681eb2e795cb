// The handle of an asynchronous operation.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>

#include <lockstep/core/export.h>

namespace lockstep {

/// Returned by the async_ form of every collective, and by isend and irecv. The tensors must not be
/// read or written between the call and the end of wait(). Dropping the handle does not cancel the
/// operation, but its result may not arrive, because the last steps run in wait() or
/// is_completed(). Such steps are averages and conversions that the transport lacks, and copies to
/// tensors that are not contiguous, or that are on a GPU while the group works in host memory.
///
/// The shared-memory backend has no thread of its own. It makes progress whenever a thread of any
/// rank calls into a group; is_completed() is such a call.
class LOCKSTEP_API Work {
 public:
  virtual ~Work() = default;

  /// Blocks until the operation is complete on this rank. Throws TimeoutError at the deadline (by
  /// default the group's timeout) and CommError if a peer died or the group was aborted. Over NCCL,
  /// without a timeout, it makes the current stream wait, as PyTorch does; if the operation then
  /// fails on the device, the group's next call throws.
  virtual void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) = 0;

  /// Makes as much progress as possible without blocking. Returns whether the operation has ended,
  /// successfully or with an error. Does not throw.
  virtual bool is_completed() = 0;

  /// Why the operation failed; null while it runs and after success.
  virtual std::exception_ptr error() const = 0;

  /// The sender's rank of a completed receive; -1 for all other operations.
  virtual int source_rank() const { return -1; }
};

}  // namespace lockstep
