#include <lockstep/report/time_windows.h>

#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::report {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::size_t> touched(const TimeWindows& windows, double from, double to) {
  std::vector<std::size_t> indices;
  windows.visit(from, to, [&](std::size_t index, const TimeWindow&) { indices.push_back(index); });
  return indices;
}

TEST(TimeWindows, AreFoundByTheTimesThatTouchThem) {
  const TimeWindows windows({{20, 30}, {0, 10}, {30, 40}});
  EXPECT_THAT(touched(windows, 5, 25), ElementsAre(1, 0));
  EXPECT_THAT(touched(windows, 30, 30), ElementsAre(0, 2));
  EXPECT_THAT(touched(windows, 11, 19), IsEmpty());
  EXPECT_THAT(touched(windows, 41, 50), IsEmpty());
  EXPECT_THAT(touched(TimeWindows(), 0, 1), IsEmpty());
  EXPECT_DOUBLE_EQ(windows.length_within(5, 35), 5 + 10 + 5);
  EXPECT_DOUBLE_EQ(windows.length_within(12, 18), 0);
}

// Windows in any order, some of which overlap, are empty, or contain others.
TEST(TimeWindows, AreThoseThatASearchOfAllFinds) {
  std::mt19937 generator(7);
  const auto below = [&](int limit) { return static_cast<double>(generator() % limit); };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<TimeWindow> all;
    for (int i = 0; i < trial % 12; ++i) {
      const double begin = below(40) - 20;
      all.push_back({begin, begin + below(15)});
    }
    const TimeWindows windows(all);
    for (double from = -22; from < 36; ++from) {
      for (const double length : {0.0, 1.0, 7.0}) {
        std::vector<std::size_t> expected;
        for (std::size_t i = 0; i < all.size(); ++i) {
          if (all[i].begin <= from + length && all[i].end >= from) expected.push_back(i);
        }
        EXPECT_THAT(touched(windows, from, from + length),
                    ::testing::UnorderedElementsAreArray(expected));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::report
