#include <lockstep/parallel/pipeline/schedule/partition.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::pipeline {
namespace {

using testing::ElementsAre;

double largest_of(const std::vector<double>& costs, const std::vector<int>& sizes) {
  double largest = 0;
  auto next = costs.begin();
  for (const int size : sizes) {
    largest = std::max(largest, std::accumulate(next, next + size, 0.0));
    next += size;
  }
  return largest;
}

// The cost of the largest part, minimised over all ways to cut.
double best_of(const std::vector<double>& costs, std::size_t begin, int parts) {
  if (parts == 1)
    return std::accumulate(costs.begin() + static_cast<long>(begin), costs.end(), 0.0);
  double best = std::numeric_limits<double>::infinity(), first = 0;
  for (std::size_t end = begin + 1; end + static_cast<std::size_t>(parts) - 1 <= costs.size();
       ++end) {
    first += costs[end - 1];
    best = std::min(best, std::max(first, best_of(costs, end, parts - 1)));
  }
  return best;
}

TEST(PipelinePartition, CutsWhereTheLargestPartIsSmallest) {
  EXPECT_THAT(partition({1, 1, 1, 1}, 2), ElementsAre(2, 2));
  EXPECT_THAT(partition({8, 1, 1, 1}, 2), ElementsAre(1, 3));
  EXPECT_THAT(partition({1, 2, 3}, 3), ElementsAre(1, 1, 1));
  EXPECT_EQ(partition({0, 0, 5}, 2).size(), 2U);
  EXPECT_THAT(partition({3, 4}, 1), ElementsAre(2));
}

TEST(PipelinePartition, IsAsGoodAsAllWaysToCut) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> costs(1 + random() % 9);
    for (double& cost : costs) cost = static_cast<double>(random() % 50);
    const int parts = 1 + static_cast<int>(random() % costs.size());
    const std::vector<int> sizes = partition(costs, parts);
    ASSERT_EQ(sizes.size(), static_cast<std::size_t>(parts));
    ASSERT_EQ(std::accumulate(sizes.begin(), sizes.end(), 0), static_cast<int>(costs.size()));
    ASSERT_GE(*std::min_element(sizes.begin(), sizes.end()), 1);
    ASSERT_DOUBLE_EQ(largest_of(costs, sizes), best_of(costs, 0, parts));
  }
}

TEST(PipelinePartition, RefusesWhatCannotBeCut) {
  EXPECT_EQ(testing_support::message_of<ConfigError>([] { partition({1}, 2); }),
            "cannot cut 1 layers into 2 stages");
  EXPECT_THROW(partition({1}, 0), ConfigError);
  EXPECT_THROW(partition({}, 1), ConfigError);
  EXPECT_EQ(testing_support::message_of<ConfigError>([] { partition({1, -1}, 1); }),
            "the cost of layer 1 is -1");
  EXPECT_THROW(partition({1, std::numeric_limits<double>::quiet_NaN()}, 1), ConfigError);
  EXPECT_EQ(testing_support::message_of<ConfigError>(
                [] { partition({std::numeric_limits<double>::infinity(), 1}, 1); }),
            "the cost of layer 0 is inf");
}

}  // namespace
}  // namespace lockstep::pipeline
