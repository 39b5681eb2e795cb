#include <lockstep/core/trace/matched_collectives.h>

namespace lockstep {

Clock::time_point on_rank_0(Clock::time_point time, const ClockOffset& clock) {
  return time +
         std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(clock.nanoseconds));
}

namespace {

// Whether all ranks wait for this span's rank if it comes last. A message waits only for its
// sender.
bool can_be_waited_for(const Span& span) {
  return span.category != kMessageCategory || span.name == kSendName;
}

}  // namespace

std::map<std::string, MatchedCollective> match_collectives(const std::vector<RankTrace>& ranks) {
  std::map<std::string, MatchedCollective> collectives;
  std::map<std::string, int> spans;
  for (const RankTrace& rank : ranks) {
    for (const Span& span : rank.spans) {
      if (span.collective.empty()) continue;
      ++spans[span.collective];
      const Clock::time_point begin = on_rank_0(span.begin, rank.clock);
      const auto [found, is_new] =
          collectives.try_emplace(span.collective, MatchedCollective{.number = collectives.size(),
                                                                     .last_rank = rank.rank,
                                                                     .last_begin = begin});
      const bool is_message = span.category == kMessageCategory;
      if (is_new || !can_be_waited_for(span)) continue;
      if (!is_message && begin <= found->second.last_begin) continue;
      found->second.last_rank = rank.rank;
      found->second.last_begin = begin;
    }
  }
  std::erase_if(collectives, [&](const auto& each) { return spans[each.first] < 2; });
  return collectives;
}

}  // namespace lockstep
