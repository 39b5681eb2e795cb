// Records the events of an all-reduce over point-to-point messages on one rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep::comm {

/// Times are in nanoseconds of the monotonic clock, which all processes of a host share.
struct TraceEvent {
  enum class Kind { kSend, kReceive, kReduce };
  Kind kind = Kind::kSend;
  int step = 0;
  int peer = -1;  ///< -1 for kReduce, which combines all data received in the step
  ScheduledRange range{};
  std::size_t bytes = 0;
  std::int64_t start_ns = 0;  ///< when the transfer was started
  std::int64_t end_ns = 0;    ///< when this rank noticed its completion
};

struct Trace {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::vector<TraceEvent> events{};
};

/// Convert a trace to text, to send it to another rank, and back.
std::string to_text(const Trace& trace);
Trace trace_from_text(const std::string& text);

/// While it exists, the all-reduces over point-to-point messages that this thread starts are
/// recorded in `trace`, which must outlive them. Records one all-reduce at a time.
class TraceScope {
 public:
  explicit TraceScope(Trace& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  /// The current trace of this thread; null if there is none.
  static Trace* current();

 private:
  Trace* before_;
};

}  // namespace lockstep::comm
