// When a device did its work, as opposed to when the host handed it over.
#pragma once

#include <vector>

#include <c10/core/Event.h>
#include <torch/types.h>

namespace lockstep {

/// Records moments of a device's current stream and tells how far they are apart. Goes through
/// LibTorch's interface to events, which every kind of device implements. Recording costs a few
/// microseconds and never waits; nobody may record while is_capturing(). Not thread-safe, but calls
/// may come from several threads one after the other. Errors are those of the device.
class StreamClock {
 public:
  /// A moment: reached when the device has done all that was in the stream when it was recorded.
  using Moment = c10::Event;

  /// `device` is no CPU. Without an index it is the calling thread's current one.
  explicit StreamClock(torch::Device device);

  torch::Device device() const { return device_; }
  /// The end of what the calling thread's current stream of the device holds now.
  Moment record();
  /// Takes a moment that nobody asks about any more: record() uses its event again.
  void recycle(Moment moment) { spare_.push_back(std::move(moment)); }

  /// Seconds from `earlier` to `later`, both reached.
  static double seconds_between(const Moment& earlier, const Moment& later);

 private:
  torch::Device device_;
  std::vector<Moment> spare_;
};

}  // namespace lockstep
