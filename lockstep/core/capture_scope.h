// Reports whether device work is being recorded, for example into a CUDA graph, instead of
// executed.
#pragma once

#include <atomic>

#include <lockstep/core/export.h>

namespace lockstep {

/// While a CaptureScope lives, this process records its device work. None of it runs, so no code
/// may wait for the device, query its progress, or record an event for timing. Scopes may nest and
/// belong to any thread: a backward pass runs on threads of its own.
class LOCKSTEP_API CaptureScope {
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
