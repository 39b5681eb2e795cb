// Computes the offset between the monotonic clocks of two ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/trace/span.h>

namespace lockstep {

/// The times when a rank entered and left a barrier, on its own clock.
struct BarrierTimes {
  std::int64_t entered_ns = 0;
  std::int64_t left_ns = 0;
};

/// The offset of `own` from `rank_0`; both must hold the same barriers. No rank leaves a barrier
/// before the other has entered it, so each barrier gives a lower and an upper bound. The offset is
/// the middle of the narrowest interval, however the messages travelled; it is 0 if 0 lies within
/// that interval.
ClockOffset clock_offset(const std::vector<BarrierTimes>& rank_0,
                         const std::vector<BarrierTimes>& own);

/// Converts the times to text for a message, and back. Throws a DataError for an invalid text.
std::string to_text(const std::vector<BarrierTimes>& times);
std::vector<BarrierTimes> barrier_times_from(const std::string& text);

}  // namespace lockstep
