// Deadlines and stopwatches.
#include <lockstep/core/clock.h>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Deadline, ExpiresOnceItsTimeHasPassed) {
  const Deadline past(Milliseconds(-5)), now(Milliseconds(0)), later(Milliseconds(3'600'000));
  for (const Deadline& each : {past, now}) {
    EXPECT_TRUE(each.expired());
    EXPECT_EQ(each.remaining().count(), 0) << "never negative";
  }
  EXPECT_FALSE(later.expired());
  EXPECT_GT(later.remaining(), std::chrono::minutes(59));
  EXPECT_LE(later.remaining(), std::chrono::minutes(60));
}

TEST(Deadline, OfTheLargestTimeoutIsAHundredYearsAway) {
  const Deadline far(Milliseconds::max());
  EXPECT_FALSE(far.expired());
  EXPECT_GT(far.remaining(), std::chrono::hours(24 * 365 * 99));
}

TEST(Stopwatch, AddsUpWhatLiesBetweenStartAndStop) {
  Stopwatch watch;
  EXPECT_EQ(watch.seconds(), 0);
  const Clock::time_point begin = Clock::now();
  {
    const StopwatchScope scope(watch);
  }
  const double once = watch.seconds();
  {
    const StopwatchScope scope(watch);
  }
  EXPECT_GE(once, 0);
  EXPECT_GE(watch.seconds(), once);
  EXPECT_LE(watch.seconds(), seconds_since(begin));
  watch.reset();
  EXPECT_EQ(watch.seconds(), 0);
}

TEST(Clock, ConvertsSecondsBothWays) {
  EXPECT_EQ(duration_of(0.25), Milliseconds(250));
  double seconds = 100;
  const Clock::time_point begin = Clock::now();
  {
    const SecondsScope scope(seconds);
  }
  EXPECT_GE(seconds, 100);
  EXPECT_LE(seconds, 100 + seconds_since(begin));
}

}  // namespace
}  // namespace lockstep
