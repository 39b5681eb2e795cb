// How far the monotonic clocks of two ranks are apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/trace/span.h>

namespace lockstep {

/// When a rank entered and left a barrier, on its own clock.
struct BarrierTimes {
  std::int64_t entered_ns = 0;
  std::int64_t left_ns = 0;
};

/// The offset of `own` from `rank_0`, which have the same barriers. Nobody leaves a barrier that
/// the other has not entered, so that each one gives a lower and an upper bound; the offset is the
/// middle of the narrowest interval, whatever the way of the messages, and 0 where 0 lies within
/// it.
ClockOffset clock_offset(const std::vector<BarrierTimes>& rank_0,
                         const std::vector<BarrierTimes>& own);

/// For a message, and back. DataError for another text.
std::string to_text(const std::vector<BarrierTimes>& times);
std::vector<BarrierTimes> barrier_times_from(const std::string& text);

}  // namespace lockstep
