#include <lockstep/program/graph/saturated.h>

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace lockstep::program {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

TEST(Saturated, IsExactWhereTheResultFits) {
  EXPECT_EQ(saturated_sum(2, 3), 5);
  EXPECT_EQ(saturated_sum(kLargest - 1, 1), kLargest);
  EXPECT_EQ(saturated_product(6, 7), 42);
  EXPECT_EQ(saturated_product(kLargest, 0), 0);
  EXPECT_EQ(saturated_product(1, kLargest), kLargest);
}

TEST(Saturated, IsTheLargestNumberWhereItDoesNot) {
  EXPECT_EQ(saturated_sum(kLargest, 1), kLargest);
  EXPECT_EQ(saturated_sum(kLargest, kLargest), kLargest);
  EXPECT_EQ(saturated_product(kLargest, 4), kLargest);
  EXPECT_EQ(saturated_product(std::int64_t{1} << 32, std::int64_t{1} << 31), kLargest);
}

}  // namespace
}  // namespace lockstep::program
