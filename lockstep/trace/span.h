// What a rank did from one moment to another.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <lockstep/core/clock.h>

namespace lockstep {

/// The category of a value at one moment, such as the length of a queue: a span that ends where it
/// begins, with the value as a whole number in arguments["value"].
inline constexpr const char* kValueCategory = "value";

/// The category of a message between two ranks, which has the name kSendName at the rank that sends
/// it. Its two spans name it as those of a collective name theirs.
inline constexpr const char* kMessageCategory = "message";
inline constexpr const char* kSendName = "send";

struct Span {
  std::string name{};
  std::string category{};
  Clock::time_point begin{};
  Clock::time_point end{};
  std::string track{};  ///< the row; rows come in the order in which they first appear
  std::map<std::string, std::string> arguments = {};  ///< shown when the span is chosen
  /// The name of the collective that the span belongs to: all ranks that take part in it give the
  /// same text, and no other collective has it. Empty: the span has no match on other ranks.
  std::string collective = {};
};

/// How a rank's monotonic clock compares with rank 0's.
struct ClockOffset {
  std::int64_t nanoseconds = 0;              ///< to add to a time of this rank
  std::int64_t uncertainty_nanoseconds = 0;  ///< half of the round trip that measured it
};

/// What one rank has recorded.
struct RankTrace {
  int rank = 0;
  std::string host{};  ///< empty: not known
  ClockOffset clock{};
  std::vector<Span> spans{};
};

/// `trace` as text, to be sent to the rank that writes the file, and back. DataError for a text
/// that to_text() has not made.
std::string to_text(const RankTrace& trace);
RankTrace rank_trace_from(const std::string& text);

}  // namespace lockstep
