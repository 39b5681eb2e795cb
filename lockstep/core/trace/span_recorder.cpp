#include <lockstep/core/trace/span_recorder.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string_view>

#include <lockstep/core/strings.h>

namespace lockstep {

namespace detail {
std::atomic<bool> is_recording{false};
std::atomic<SpanObserver*> observer{nullptr};
}  // namespace detail

namespace {

struct RecordedSpan {
  const char* name = nullptr;
  const char* category = nullptr;
  std::int64_t number = -1;
  int stage = -1;
  Clock::time_point begin{};
  Clock::time_point end{};
};

// The spans of one thread, which writes them. The thread that stops the recording reads them.
struct SpanRing {
  std::mutex mutex;
  std::string track;
  std::vector<RecordedSpan> spans;  // grows up to the capacity
  std::size_t next = 0;             // the oldest span, if the ring is full
};

struct SpanRings {
  std::mutex mutex;
  std::vector<std::shared_ptr<SpanRing>> rings;
  std::size_t capacity = 0;
  std::uint64_t recording = 0;  // counts the recordings
};

// Never destroyed: threads may outlive static objects.
SpanRings& all_rings() {
  static auto* const rings = new SpanRings;
  return *rings;
}

struct OwnRing {
  std::string track;
  std::uint64_t recording = 0;  // the recording that `ring` was made for
  std::size_t capacity = 0;
  std::shared_ptr<SpanRing> ring;
};

thread_local OwnRing own;

// The number of the current or last recording, which threads read without the lock.
std::atomic<std::uint64_t> current_recording{0};

SpanRing& own_ring() {
  if (own.ring && own.recording == current_recording.load(std::memory_order_acquire)) {
    return *own.ring;
  }
  SpanRings& all = all_rings();
  const std::scoped_lock lock(all.mutex);
  own.ring = std::make_shared<SpanRing>();
  own.recording = all.recording;
  own.capacity = all.capacity;
  all.rings.push_back(own.ring);
  own.ring->track = own.track.empty() ? str("thread ", all.rings.size()) : own.track;
  return *own.ring;
}

std::string name_of(const RecordedSpan& span) {
  const std::string number = span.number < 0 ? "" : std::to_string(span.number);
  if (span.stage >= 0) return str(span.stage, span.name, number);
  return number.empty() ? std::string(span.name) : str(span.name, ' ', number);
}

Span value_of(const RecordedSpan& span, const std::string& track) {
  return {.name = span.name,
          .category = span.category,
          .begin = span.begin,
          .end = span.end,
          .track = track,
          .arguments = {{"value", std::to_string(span.number)}}};
}

void append(SpanRing& ring, Clock::time_point from, std::vector<Span>& to) {
  const std::scoped_lock lock(ring.mutex);
  for (std::size_t i = 0; i < ring.spans.size(); ++i) {
    const RecordedSpan& span = ring.spans[(ring.next + i) % ring.spans.size()];
    if (span.end <= from) continue;
    if (std::string_view(span.category) == kValueCategory) {
      to.push_back(value_of(span, ring.track));
      continue;
    }
    to.push_back({.name = name_of(span),
                  .category = span.category,
                  .begin = span.begin,
                  .end = span.end,
                  .track = ring.track});
  }
}

}  // namespace

void start_recording(std::size_t spans_per_thread) {
  SpanRings& all = all_rings();
  const std::scoped_lock lock(all.mutex);
  all.rings.clear();
  all.capacity = std::max<std::size_t>(spans_per_thread, 1);
  current_recording.store(++all.recording, std::memory_order_release);
  detail::is_recording.store(true, std::memory_order_relaxed);
}

std::vector<Span> stop_recording(Clock::time_point from) {
  detail::is_recording.store(false, std::memory_order_relaxed);
  SpanRings& all = all_rings();
  const std::scoped_lock lock(all.mutex);
  std::vector<Span> spans;
  for (const auto& ring : all.rings) append(*ring, from, spans);
  all.rings.clear();
  return spans;
}

void name_thread_track(const std::string& name) { own.track = name; }

void record_span(const char* name, const char* category, std::int64_t number,
                 Clock::time_point begin, Clock::time_point end, int stage) {
  if (!is_recording()) return;
  SpanRing& ring = own_ring();
  const std::scoped_lock lock(ring.mutex);
  const RecordedSpan span{name, category, number, stage, begin, end};
  if (ring.spans.size() < own.capacity) {
    ring.spans.push_back(span);
    return;
  }
  ring.spans[ring.next] = span;
  ring.next = (ring.next + 1) % own.capacity;
}

void observe_spans(SpanObserver* observer) {
  detail::observer.store(observer, std::memory_order_release);
}

void record_value(const char* name, std::int64_t value) {
  if (!is_recording()) return;
  const Clock::time_point now = Clock::now();
  record_span(name, kValueCategory, value, now, now);
}

}  // namespace lockstep
