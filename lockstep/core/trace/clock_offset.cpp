#include <lockstep/core/trace/clock_offset.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include <lockstep/core/error.h>

namespace lockstep {

ClockOffset clock_offset(const std::vector<BarrierTimes>& rank_0,
                         const std::vector<BarrierTimes>& own) {
  if (rank_0.empty() || own.empty()) return {};
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < std::min(rank_0.size(), own.size()); ++i) {
    least = std::max(least, rank_0[i].entered_ns - own[i].left_ns);
    most = std::min(most, rank_0[i].left_ns - own[i].entered_ns);
  }
  // Clocks of different speeds may leave no interval.
  if (least > most) std::swap(least, most);
  const std::int64_t middle = least + (most - least) / 2;
  const bool may_be_equal = least <= 0 && 0 <= most;
  return {.nanoseconds = may_be_equal ? 0 : middle,
          .uncertainty_nanoseconds = (most - least + 1) / 2};
}

std::string to_text(const std::vector<BarrierTimes>& times) {
  std::ostringstream text;
  for (const BarrierTimes& each : times) text << each.entered_ns << ' ' << each.left_ns << '\n';
  return text.str();
}

std::vector<BarrierTimes> barrier_times_from(const std::string& text) {
  std::istringstream in(text);
  std::vector<BarrierTimes> times;
  for (BarrierTimes each; in >> each.entered_ns >> each.left_ns;) times.push_back(each);
  if (!in.eof()) throw DataError("these are not times of barriers: '" + text + "'");
  return times;
}

}  // namespace lockstep
