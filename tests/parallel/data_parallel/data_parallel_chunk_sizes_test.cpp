#include <lockstep/parallel/data_parallel/chunk_sizes.h>

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::detail::data_parallel {
namespace {

using Sizes = std::vector<std::int64_t>;

struct ChunkCase {
  std::int64_t samples;
  std::vector<double> weights;
  Sizes expected;
};

TEST(ChunkSizes, AreProportionalWithTheRestToTheLargestRemainders) {
  const ChunkCase cases[] = {
      {6, {1, 1, 1}, {2, 2, 2}},
      {7, {1, 1, 1}, {3, 2, 2}},
      {5, {1, 1, 1, 1}, {2, 1, 1, 1}},
      {6, {2, 1}, {4, 2}},
      {7, {2, 1}, {5, 2}},
      {10, {3, 1, 2}, {5, 2, 3}},
      {10, {0.1, 0.9}, {1, 9}},
      {2, {1, 1, 1}, {1, 1, 0}},
      {1, {1, 1}, {1, 0}},
      {0, {1, 1}, {0, 0}},
      {9, {1}, {9}},
  };
  for (const ChunkCase& c : cases) {
    EXPECT_EQ(chunk_sizes(c.samples, c.weights), c.expected) << c.samples;
  }
}

TEST(ChunkSizes, TheFirstIsEmptyOnlyWithoutSamples) {
  EXPECT_EQ(chunk_sizes(1, {1, 9}), (Sizes{1, 0}));
  EXPECT_EQ(chunk_sizes(3, {1, 100}), (Sizes{1, 2}));
  EXPECT_EQ(chunk_sizes(2, {1, 100, 100}), (Sizes{1, 0, 1}));
}

TEST(ChunkSizes, MayComeFromWeightsWhoseSumIsInfinite) {
  EXPECT_EQ(chunk_sizes(6, {1e308, 1e308}), (Sizes{3, 3}));
  EXPECT_EQ(chunk_sizes(6, {1.5e308, 0.75e308}), (Sizes{4, 2}));
  EXPECT_EQ(chunk_sizes(6, {1e308, 1e-308}), (Sizes{6, 0}));
  EXPECT_EQ(chunk_sizes(6, {1e-320, 1e-320}), (Sizes{3, 3}));
}

TEST(ChunkSizes, AddUpToTheBatch) {
  const std::vector<double> weights = {0.3, 1e-6, 7, 1.0 / 3, 2};
  for (std::int64_t samples = 0; samples < 500; ++samples) {
    const Sizes sizes = chunk_sizes(samples, weights);
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), samples);
    EXPECT_GE(*std::min_element(sizes.begin(), sizes.end()), 0);
  }
}

}  // namespace
}  // namespace lockstep::detail::data_parallel
