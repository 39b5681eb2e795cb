// The adapter's queries to the device in whose streams a library runs its operations.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::c10d_adapter {

/// These answers are right for any device without graphs; NCCL's are in nccl.cpp. Safe to use from
/// several threads.
class DeviceQueries {
 public:
  virtual ~DeviceQueries() = default;

  /// Whether the calling thread's current stream is being captured into a graph. What is started
  /// now will run when the graph does, and has no end of its own that could be queried.
  virtual bool is_capturing() { return false; }

  /// Whether the device has ended `work`, well or not. Does not wait for the device, but a lock of
  /// its driver can hold the caller up. Other threads may capture streams meanwhile; the caller's
  /// must not be captured.
  virtual bool has_ended(c10d::Work& work) { return work.isCompleted(); }
};

}  // namespace lockstep::c10d_adapter
