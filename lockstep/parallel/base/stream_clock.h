// Measures when a device did its work, as opposed to when the host queued it.
#pragma once

#include <vector>

#include <c10/core/Event.h>
#include <torch/types.h>

namespace lockstep::detail {

/// Records moments of a device's current stream and measures the time between them. Uses LibTorch's
/// event interface, which every kind of device implements. Recording takes a few microseconds and
/// never waits; do not record while is_capturing(). Not thread-safe, but different threads may call
/// it one after the other. Errors come from the device.
class StreamClock {
 public:
  /// A moment, reached when the device has finished all work queued in the stream before it.
  using Moment = c10::Event;

  /// `device` must not be a CPU. Without an index it is the calling thread's current device.
  explicit StreamClock(torch::Device device);

  torch::Device device() const { return device_; }
  /// Records the current end of the calling thread's current stream on the device.
  Moment record();
  /// Takes back a moment that is no longer needed: record() reuses its event.
  void recycle(Moment moment) { spare_.push_back(std::move(moment)); }

  /// Seconds from `earlier` to `later`; both must have been reached.
  static double seconds_between(const Moment& earlier, const Moment& later);

 private:
  torch::Device device_;
  std::vector<Moment> spare_;
};

}  // namespace lockstep::detail
