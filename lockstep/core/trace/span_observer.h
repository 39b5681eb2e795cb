// An observer is called for each scope during a recording, for example to forward it to a vendor's
// profiler.
#pragma once

#include <atomic>
#include <cstdint>

#include <lockstep/core/export.h>

namespace lockstep {

/// begin() and end() are called on the thread of each SpanScope, nested like the scopes. Both must
/// be quick and must not throw.
class LOCKSTEP_API SpanObserver {
 public:
  virtual ~SpanObserver() = default;
  /// Receives the arguments of the SpanScope.
  virtual void begin(const char* name, const char* category, std::int64_t number) noexcept = 0;
  virtual void end(const char* category) noexcept = 0;
};

namespace detail {
extern LOCKSTEP_API std::atomic<SpanObserver*> observer;
}

/// Sets the observer; null removes it. Thread-safe. An open scope keeps the observer that it began
/// with, so an observer must live as long as the program.
LOCKSTEP_API void observe_spans(SpanObserver* observer);

}  // namespace lockstep
