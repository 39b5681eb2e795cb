// Records what the threads of this process do, while somebody wants to know.
//
//   start_recording();
//   { const SpanScope scope("load", "data", batch); ... }   // on any thread, in any room
//   std::vector<Span> spans = stop_recording(Clock::time_point::min());
//
// A scope costs one load of an atomic while nothing is recorded, else two reads of the clock and an
// uncontended lock. Each thread has a ring of its own, so that memory is bounded; new spans take
// the place of the oldest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/trace/span.h>
#include <lockstep/trace/span_observer.h>

namespace lockstep {

namespace trace_internal {
extern std::atomic<bool> is_recording;
}

inline bool is_recording() { return trace_internal::is_recording.load(std::memory_order_relaxed); }

/// Forgets what was recorded before and begins. Thread-safe, as all functions of this file.
void start_recording(std::size_t spans_per_thread = 8192);

/// Ends the recording. Returns the spans that end after `from`, a track for each thread, the oldest
/// first. A scope that is open now is left out.
std::vector<Span> stop_recording(Clock::time_point from);

/// As long as it lives, no thread records: what is much and of little interest would take the place
/// of what is wanted. Scopes that are open are recorded when they end, if that is later. Belongs to
/// the thread that starts and stops the recording, and ends before it is stopped.
class RecordingPause {
 public:
  RecordingPause() : paused_(trace_internal::is_recording.exchange(false)) {}
  ~RecordingPause() {
    if (paused_) trace_internal::is_recording.store(true);
  }
  RecordingPause(const RecordingPause&) = delete;
  RecordingPause& operator=(const RecordingPause&) = delete;

 private:
  const bool paused_;
};

/// Names the track of the calling thread; others are "thread 1", "thread 2", ...
void name_thread_track(const std::string& name);

/// Records a span of the calling thread, if something is recorded. `name` and `category` must live
/// as long as the program, as literals do. A `number` from 0 on stands behind the name, as in "load
/// 12"; with a `stage` from 0 on the name is that of an action of a pipeline, as in "2F12".
void record_span(const char* name, const char* category, std::int64_t number,
                 Clock::time_point begin, Clock::time_point end, int stage = -1);

/// Records a value of this moment, such as the length of a queue, if something is recorded: a span
/// of kValueCategory. `name` must live as long as the program; `value` is at least 0.
void record_value(const char* name, std::int64_t value);

/// Its lifetime is a span.
class SpanScope {
 public:
  explicit SpanScope(const char* name, const char* category, std::int64_t number = -1)
      : name_(name), category_(category), number_(number), records_(is_recording()) {
    if (!records_) return;
    begin_ = Clock::now();
    observer_ = trace_internal::observer.load(std::memory_order_acquire);
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
