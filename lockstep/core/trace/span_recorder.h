// Records the activity of this process's threads on request.
//
//   start_recording();
//   { const SpanScope scope("load", "data", batch); ... }   // on any thread
//   std::vector<Span> spans = stop_recording(Clock::time_point::min());
//
// While nothing is recorded, a scope costs one load of an atomic; during a recording, two reads of
// the clock and an uncontended lock. Each thread has its own ring, which bounds the memory; new
// spans overwrite the oldest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/core/trace/span.h>
#include <lockstep/core/trace/span_observer.h>

namespace lockstep {

namespace detail {
extern LOCKSTEP_API std::atomic<bool> is_recording;
}

inline bool is_recording() { return detail::is_recording.load(std::memory_order_relaxed); }

/// Discards the previous recording and starts a new one. Thread-safe, as are all functions of
/// this file.
LOCKSTEP_API void start_recording(std::size_t spans_per_thread = 8192);

/// Ends the recording. Returns the spans that end after `from`, thread by thread, each thread's
/// oldest span first. Each thread has its own track. Scopes that are still open are left out.
LOCKSTEP_API std::vector<Span> stop_recording(Clock::time_point from);

/// While a RecordingPause exists, no thread records. Use it where many uninteresting spans would
/// overwrite the wanted ones. Scopes that are open when it begins are recorded if they end after
/// the pause. The pause must belong to the thread that starts and stops the recording, and end
/// before the recording stops.
class LOCKSTEP_API RecordingPause {
 public:
  RecordingPause() : paused_(detail::is_recording.exchange(false)) {}
  ~RecordingPause() {
    if (paused_) detail::is_recording.store(true);
  }
  RecordingPause(const RecordingPause&) = delete;
  RecordingPause& operator=(const RecordingPause&) = delete;

 private:
  const bool paused_;
};

/// Names the track of the calling thread. If the thread has already recorded a span, the name takes
/// effect in the next recording. Threads without a name are "thread 1", "thread 2", ...
LOCKSTEP_API void name_thread_track(const std::string& name);

/// Records a span of the calling thread, during a recording. `name` and `category` must live as
/// long as the program, as literals do. A `number` of at least 0 is appended to the name, as in
/// "load 12". A `stage` of at least 0 makes the name that of a pipeline action, as in "2F12".
LOCKSTEP_API void record_span(const char* name, const char* category, std::int64_t number,
                              Clock::time_point begin, Clock::time_point end, int stage = -1);

/// Records the current value of a quantity, such as the length of a queue, during a recording: a
/// span of kValueCategory. `name` must live as long as the program; `value` is at least 0.
LOCKSTEP_API void record_value(const char* name, std::int64_t value);

/// Records its lifetime as a span.
class LOCKSTEP_API SpanScope {
 public:
  explicit SpanScope(const char* name, const char* category, std::int64_t number = -1)
      : name_(name), category_(category), number_(number), records_(is_recording()) {
    if (!records_) return;
    begin_ = Clock::now();
    observer_ = detail::observer.load(std::memory_order_acquire);
    if (observer_ != nullptr) observer_->begin(name_, category_, number_);
  }
  ~SpanScope() {
    if (!records_) return;
    if (observer_ != nullptr) observer_->end(category_);
    record_span(name_, category_, number_, begin_, Clock::now());
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  const char* const name_;
  const char* const category_;
  const std::int64_t number_;
  const bool records_;
  Clock::time_point begin_{};
  SpanObserver* observer_ = nullptr;
};

}  // namespace lockstep
