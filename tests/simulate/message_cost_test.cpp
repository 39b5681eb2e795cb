#include <lockstep/simulate/message_cost.h>

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::simulate {
namespace {

TEST(MessageCost, IsAlphaAndBeta) {
  const MessageCost cost = MessageCost::of(20e-6, 2e9);
  EXPECT_DOUBLE_EQ(cost.seconds(0), 20e-6);
  EXPECT_DOUBLE_EQ(cost.seconds(1e6), 520e-6);
  EXPECT_NEAR(cost.seconds(1e9), 0.50002, 1e-12);  // extrapolated beyond the last point
  EXPECT_DOUBLE_EQ(MessageCost().seconds(1e9), 0);
}

TEST(MessageCost, GoesThroughMeasuredPoints) {
  const MessageCost cost({{400, 5e-6}, {100, 1e-6}, {200, 2e-6}});
  EXPECT_DOUBLE_EQ(cost.seconds(10), 0.1e-6);  // on the line from the latency, here 0
  EXPECT_DOUBLE_EQ(cost.seconds(100), 1e-6);
  EXPECT_DOUBLE_EQ(cost.seconds(150), 1.5e-6);
  EXPECT_DOUBLE_EQ(cost.seconds(200), 2e-6);
  EXPECT_DOUBLE_EQ(cost.seconds(400), 5e-6);
  EXPECT_DOUBLE_EQ(cost.seconds(600), 8e-6);
  EXPECT_DOUBLE_EQ(MessageCost({{100, 1e-6}}).seconds(1e6), 1e-6);
}

TEST(MessageCost, NeverFallsWithTheSize) {
  const MessageCost cost({{100, 3e-6}, {200, 2e-6}, {300, 4e-6}});
  double before = 0;
  for (double bytes = 0; bytes < 1000; bytes += 10) {
    EXPECT_GE(cost.seconds(bytes), before) << bytes;
    before = cost.seconds(bytes);
  }
  EXPECT_DOUBLE_EQ(cost.seconds(100), 2e-6);
  EXPECT_DOUBLE_EQ(cost.seconds(200), 2e-6);
}

TEST(MessageCost, HasASpeed) {
  const MessageCost cost = MessageCost::of(10e-6, 1e9).at_speed(2);
  EXPECT_DOUBLE_EQ(cost.seconds(0), 10e-6);
  EXPECT_NEAR(cost.seconds(1e6), 510e-6, 1e-12);
}

// A wire with 10 us of latency and 1e9 bytes per second, measured without small messages.
TEST(MessageCost, DoesNotTakeTheSmallestMessageForTheLatency) {
  const MessageCost wire = MessageCost::of(10e-6, 1e9);
  for (const double smallest : {1.0, 1e4, 1e6, 1e8}) {
    std::vector<MessageCost::Point> points;
    for (const double times : {1.0, 2.0, 8.0}) {
      points.push_back({times * smallest, wire.seconds(times * smallest)});
    }
    const MessageCost cost(points);
    EXPECT_NEAR(cost.latency_seconds(), 10e-6, 1e-12) << smallest;
    for (const double bytes : {0.0, 1e3, 1e6, 1e9}) {
      for (const double factor : {0.5, 1.0, 2.0}) {
        const double expected = 10e-6 + bytes / (factor * 1e9);
        EXPECT_NEAR(cost.at_speed(factor).seconds(bytes), expected, 1e-6 * expected)
            << smallest << ' ' << bytes << ' ' << factor;
      }
    }
  }
}

TEST(MessageCost, HasNoLatencyBelowZero) {
  const MessageCost steep({{100, 1e-6}, {200, 4e-6}});
  EXPECT_DOUBLE_EQ(steep.latency_seconds(), 0);
  EXPECT_DOUBLE_EQ(steep.seconds(50), 0.5e-6);
  EXPECT_DOUBLE_EQ(steep.at_speed(2).seconds(50), 0.25e-6);
}

// A disturbed measurement may have a flat end. A message of any size beyond it would cost the same.
TEST(MessageCost, ExtendsTheLastSegmentThatRises) {
  const MessageCost flat_end({{100, 1e-6}, {200, 3e-6}, {400, 2e-6}});
  EXPECT_NEAR(flat_end.seconds(700), 2e-6 + 300 * (1e-6 / 300), 1e-15);
  const MessageCost flat({{100, 2e-6}, {200, 2e-6}});
  EXPECT_DOUBLE_EQ(flat.seconds(0), 2e-6);
  EXPECT_DOUBLE_EQ(flat.seconds(200), 2e-6);
  EXPECT_DOUBLE_EQ(flat.seconds(400), 4e-6);
  EXPECT_DOUBLE_EQ(flat.at_speed(0.5).seconds(400), 6e-6);
}

TEST(MessageCost, OfOneSizeIsTheSameAtAnySizeAndSpeed) {
  const MessageCost cost({{100, 2e-6}});
  for (const double bytes : {0.0, 100.0, 1e9}) {
    EXPECT_DOUBLE_EQ(cost.at_speed(0.5).seconds(bytes), 2e-6) << bytes;
  }
}

TEST(MessageCost, RefusesWhatCannotBe) {
  EXPECT_THROW(MessageCost(std::vector<MessageCost::Point>{}), ConfigError);
  EXPECT_THROW(MessageCost({{1, -1}}), ConfigError);
  EXPECT_THROW(MessageCost({{1, 1}, {1, 2}}), ConfigError);
  EXPECT_THROW(MessageCost({{-1, 1}, {1, 2}}), ConfigError);
  EXPECT_THROW(MessageCost({{1, 1}, {2, std::numeric_limits<double>::infinity()}}), ConfigError);
  EXPECT_THROW(MessageCost({{1, std::numeric_limits<double>::quiet_NaN()}, {2, 1}}), ConfigError);
}

TEST(MessageCost, SaysWhatCannotBe) {
  using Points = std::vector<MessageCost::Point>;
  const auto refusal = [](const Points& points) {
    return testing_support::message_of<ConfigError>([&] { const MessageCost cost(points); });
  };
  EXPECT_EQ(refusal({}), "the cost of messages needs at least one measured size");
  EXPECT_EQ(refusal({{2, 3}, {1, -4}}),
            "the cost of messages must have bytes and seconds of at least 0, got -4 s for 1 bytes");
  EXPECT_EQ(refusal({{7, 1}, {5, 1}, {7, 2}}), "the cost of messages has two values for 7 bytes");
  EXPECT_EQ(refusal({{0, 0}}), "nothing was thrown");
}

}  // namespace
}  // namespace lockstep::simulate
