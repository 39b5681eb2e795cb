#include <lockstep/simulate/message_cost.h>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>

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
  EXPECT_DOUBLE_EQ(cost.seconds(10), 1e-6);
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

TEST(MessageCost, RefusesWhatCannotBe) {
  EXPECT_THROW(MessageCost(std::vector<MessageCost::Point>{}), ConfigError);
  EXPECT_THROW(MessageCost({{1, -1}}), ConfigError);
  EXPECT_THROW(MessageCost({{1, 1}, {1, 2}}), ConfigError);
}

}  // namespace
}  // namespace lockstep::simulate
