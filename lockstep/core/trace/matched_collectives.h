// Matches the spans of several ranks that belong to one collective, and finds the last rank.
// Internal to lockstep/core/trace.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <lockstep/core/trace/span.h>

namespace lockstep {

/// One collective of at least two ranks, or a message between two ranks.
struct MatchedCollective {
  std::size_t number = 0;          ///< in the order in which the collectives first occur
  int last_rank = 0;               ///< the rank whose span begins last; for a message, the sender
  Clock::time_point last_begin{};  ///< on rank 0's clock
};

/// Converts `time` to rank 0's clock.
Clock::time_point on_rank_0(Clock::time_point time, const ClockOffset& clock);

/// The collectives of the ranks, keyed by Span::collective, except those that only one rank
/// recorded.
std::map<std::string, MatchedCollective> match_collectives(const std::vector<RankTrace>& ranks);

}  // namespace lockstep
