#include <lockstep/core/trace/clock_offset.h>

#include <cstdlib>
#include <utility>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

// Barriers of two ranks whose clocks differ by `apart` ns. Messages take longer in one direction.
struct TwoRanks {
  std::vector<BarrierTimes> first;
  std::vector<BarrierTimes> second;
};

TwoRanks barriers(std::int64_t apart,
                  const std::vector<std::pair<std::int64_t, std::int64_t>>& ways) {
  TwoRanks ranks;
  std::int64_t now = 1'000'000;
  for (const auto& [there, back] : ways) {
    ranks.first.push_back({.entered_ns = now, .left_ns = now + there + back});
    ranks.second.push_back(
        {.entered_ns = now + there - apart, .left_ns = now + there + 10 - apart});
    now += 100'000;
  }
  return ranks;
}

TEST(ClockOffset, LiesWithinItsUncertainty) {
  const std::int64_t offsets[] = {5'000'000'000, -5'000'000'000, 123'456};
  for (const std::int64_t apart : offsets) {
    const TwoRanks ranks =
        barriers(apart, {{9'000, 2'000}, {500, 4'000}, {3'000, 700}, {8'000, 8'000}});
    const ClockOffset offset = clock_offset(ranks.first, ranks.second);
    EXPECT_LE(std::abs(offset.nanoseconds - apart), offset.uncertainty_nanoseconds);
    EXPECT_LE(offset.uncertainty_nanoseconds, 700);  // the fastest take 500 there, 700 back
  }
}

TEST(ClockOffset, IsZeroOfOneClock) {
  const TwoRanks ranks = barriers(0, {{9'000, 2'000}, {500, 4'000}});
  EXPECT_EQ(clock_offset(ranks.first, ranks.second).nanoseconds, 0);
  EXPECT_EQ(clock_offset(ranks.first, ranks.first).nanoseconds, 0);
  EXPECT_EQ(clock_offset({}, {}).nanoseconds, 0);
  EXPECT_EQ(clock_offset(ranks.first, {}).nanoseconds, 0);
}

TEST(ClockOffset, IsTheMiddleOfWhatIsPossible) {
  const auto offset = [](const std::vector<BarrierTimes>& first,
                         const std::vector<BarrierTimes>& own) {
    const ClockOffset found = clock_offset(first, own);
    return std::pair(found.nanoseconds, found.uncertainty_nanoseconds);
  };
  using Offset = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(offset({{0, 10}}, {{100, 106}}), Offset(-98, 8));   // from -106 to -90
  EXPECT_EQ(offset({{0, 10}}, {{100, 105}}), Offset(-98, 8));   // from -105 to -90
  EXPECT_EQ(offset({{200, 210}}, {{90, 95}}), Offset(112, 8));  // from 105 to 120
  EXPECT_EQ(offset({{0, 10}}, {{10, 20}}), Offset(0, 10));      // from -20 to 0
  EXPECT_EQ(offset({{10, 20}}, {{0, 10}}), Offset(0, 10));      // from 0 to 20
  EXPECT_EQ(offset({{10, 20}}, {{0, 9}}), Offset(10, 10));      // from 1 to 20
  // Clocks of different speeds: at most -90, and at least -10.
  EXPECT_EQ(offset({{0, 10}, {1000, 1010}}, {{0, 10}, {1100, 1110}}), Offset(-50, 40));
  // A barrier that only one rank has recorded does not count.
  EXPECT_EQ(offset({{0, 10}, {1000, 1010}}, {{100, 106}}), Offset(-98, 8));
  EXPECT_EQ(offset({{0, 10}}, {{100, 106}, {0, 1}}), Offset(-98, 8));
}

TEST(ClockOffset, TravelsAsText) {
  const std::vector<BarrierTimes> times = {{1, 2}, {-3, 4'000'000'000'000}};
  const std::vector<BarrierTimes> back = barrier_times_from(to_text(times));
  EXPECT_EQ(to_text(times), "1 2\n-3 4000000000000\n");
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].entered_ns, 1);
  EXPECT_EQ(back[0].left_ns, 2);
  EXPECT_EQ(back[1].entered_ns, -3);
  EXPECT_EQ(back[1].left_ns, 4'000'000'000'000);
  EXPECT_EQ(testing_support::message_of<DataError>([] { barrier_times_from("1 x"); }),
            "these are not times of barriers: '1 x'");
}

}  // namespace
}  // namespace lockstep
