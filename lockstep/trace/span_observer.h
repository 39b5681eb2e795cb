// An observer hears of each scope while something is recorded, as a vendor's profiler wants to.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep {

/// begin() and end() are called on the thread of each SpanScope, nested as the scopes are. Both
/// must be quick and must not throw.
class SpanObserver {
 public:
  virtual ~SpanObserver() = default;
  /// As the arguments of SpanScope.
  virtual void begin(const char* name, const char* category, std::int64_t number) noexcept = 0;
  virtual void end(const char* category) noexcept = 0;
};

namespace trace_internal {
extern std::atomic<SpanObserver*> observer;
}

/// Thread-safe. Null: nobody. Scopes that are open keep the observer that they began with, so that
/// an observer must live as long as the program.
void observe_spans(SpanObserver* observer);

}  // namespace lockstep
