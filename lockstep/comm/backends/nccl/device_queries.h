// The adapter's queries to the device whose streams run a library's operations.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::nccl {

/// The defaults are right for any device without graphs. NCCL's overrides are in nccl.cpp. Safe to
/// use from several threads.
class DeviceQueries {
 public:
  virtual ~DeviceQueries() = default;

  /// Whether the calling thread's current stream is being captured into a graph. An operation that
  /// is started during a capture runs when the graph runs, and its end cannot be queried.
  virtual bool is_capturing() { return false; }

  /// Whether the device has ended `work`, successfully or with an error. Does not wait for the
  /// device, but may block on a lock of its driver. The caller's stream must not be captured; other
  /// threads may capture theirs.
  virtual bool has_ended(c10d::Work& work) { return work.isCompleted(); }
};

}  // namespace lockstep::nccl
