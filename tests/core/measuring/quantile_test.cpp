#include <lockstep/core/measuring/quantile.h>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Quantile, IsLinearBetweenNeighbours) {
  const std::vector<double> values{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(median(values), 2.5);
  EXPECT_DOUBLE_EQ(median({5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(median({7}), 7);
}

TEST(Quantile, WithoutValuesIsZero) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(quantile({}, 0.9), 0);
}

}  // namespace
}  // namespace lockstep
