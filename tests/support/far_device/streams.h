// Streams and events of the far device: queues whose work runs when a thread waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace lockstep::testing_support::far_device {

inline constexpr auto kType = c10::DeviceType::PrivateUse1;

inline thread_local int current_index = 0;
inline std::atomic<int> holds{0};

/// The work of a stream, in order. It runs when a thread waits for a later point of the stream.
class Queue {
 public:
  std::uint64_t push(std::function<void()> work);
  std::uint64_t end() const;
  bool has_reached(std::uint64_t point) const;
  void run_to(std::uint64_t point);

 private:
  std::deque<std::function<void()>> pending_;
  std::uint64_t pushed_ = 0;
  std::uint64_t done_ = 0;
};

Queue& queue_of(c10::Stream stream);

c10::DeviceIndex index_of(c10::Device device);

c10::Stream stream_of_thread(c10::Device device);

/// Implements LibTorch's guards, streams and events of the far device. Lives forever.
const c10::impl::DeviceGuardImplInterface& far_guard();

}  // namespace lockstep::testing_support::far_device
