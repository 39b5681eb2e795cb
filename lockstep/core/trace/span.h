// A named time interval of a rank's work.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/export.h>

namespace lockstep {

/// The category of spans that record a value at one moment, such as the length of a queue. Such a
/// span ends where it begins and has the value, a whole number, in arguments["value"].
inline constexpr const char* kValueCategory = "value";

/// The category of a message between two ranks. The sender's span has the name kSendName. Both
/// spans carry the same Span::collective.
inline constexpr const char* kMessageCategory = "message";
inline constexpr const char* kSendName = "send";

struct LOCKSTEP_API Span {
  std::string name{};
  std::string category{};
  Clock::time_point begin{};
  Clock::time_point end{};
  std::string track{};  ///< the row; rows come in the order in which they first appear
  std::map<std::string, std::string> arguments = {};  ///< shown when the span is selected
  /// A name for the collective that the span belongs to. All its ranks use the same text, and no
  /// other collective does. Empty: the span has no match on other ranks.
  std::string collective = {};
};

/// The offset of a rank's monotonic clock from rank 0's.
struct LOCKSTEP_API ClockOffset {
  std::int64_t nanoseconds = 0;              ///< add it to a time of this rank to get rank 0's time
  std::int64_t uncertainty_nanoseconds = 0;  ///< half of the round trip of the measurement
};

/// The recording of one rank.
struct LOCKSTEP_API RankTrace {
  int rank = 0;
  std::string host{};  ///< empty: not known
  ClockOffset clock{};
  std::vector<Span> spans{};
};

/// Converts `trace` to text for the rank that writes the file, and back. rank_trace_from() throws a
/// DataError if `text` was not made by to_text().
LOCKSTEP_API std::string to_text(const RankTrace& trace);
LOCKSTEP_API RankTrace rank_trace_from(const std::string& text);

}  // namespace lockstep
