// Whether a device's work is being recorded, as into a CUDA graph, instead of executed.
#pragma once

#include <atomic>

namespace lockstep {

/// While one lives, this process records what it hands to a device. Nothing of it runs, so nobody
/// may wait for the device, ask it how far it is, or record an event for a time. Scopes may nest
/// and belong to any thread: a backward runs on threads of its own.
class CaptureScope {
 public:
  CaptureScope() noexcept { ++count_; }
  ~CaptureScope() { --count_; }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  friend bool is_capturing() noexcept;
  static inline std::atomic<int> count_ = 0;
};

/// Whether a CaptureScope lives in this process.
inline bool is_capturing() noexcept { return CaptureScope::count_.load() > 0; }

}  // namespace lockstep
