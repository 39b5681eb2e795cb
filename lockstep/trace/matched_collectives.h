// Which spans of several ranks are one collective, and who came last. Internal to the room.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <lockstep/trace/span.h>

namespace lockstep {

/// One collective of at least two ranks, or a message between two.
struct MatchedCollective {
  std::size_t number = 0;          ///< in the order in which the collectives are first met
  int last_rank = 0;               ///< whose span begins last; of a message the rank that sends it
  Clock::time_point last_begin{};  ///< on rank 0's clock
};

/// The time on rank 0's clock.
Clock::time_point on_rank_0(Clock::time_point time, const ClockOffset& clock);

/// The collectives of the ranks by Span::collective, those of one rank left out.
std::map<std::string, MatchedCollective> match_collectives(const std::vector<RankTrace>& ranks);

}  // namespace lockstep
