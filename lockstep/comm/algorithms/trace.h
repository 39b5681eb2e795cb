// What really happened in an all-reduce over point-to-point, on one rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/comm/algorithms/schedule.h>

namespace lockstep {

/// Times are nanoseconds of the monotonic clock, which the processes of one host share.
struct TraceEvent {
  enum class Kind { kSend, kReceive, kReduce };
  Kind kind = Kind::kSend;
  int step = 0;
  int peer = -1;  ///< -1 of kReduce: all that arrived in the step
  ScheduledRange range{};
  std::size_t bytes = 0;
  std::int64_t start_ns = 0;  ///< when the transfer was handed over
  std::int64_t end_ns = 0;    ///< when this rank noticed that it was complete
};

struct Trace {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::vector<TraceEvent> events{};
};

/// As text, to send to another rank, and back.
std::string to_text(const Trace& trace);
Trace trace_from_text(const std::string& text);

/// While it lives, the all-reduces that this thread starts over point-to-point are recorded in
/// `trace`, which must outlive them. For one at a time.
class TraceScope {
 public:
  explicit TraceScope(Trace& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  /// The trace of this thread; null if there is none.
  static Trace* current();

 private:
  Trace* before_;
};

}  // namespace lockstep
