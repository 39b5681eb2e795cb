#include <lockstep/data/augment/mix_choice.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/data/augment/augment_statistics.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

constexpr std::uint64_t kBatches = 6000;

std::vector<double> lambdas(double alpha) {
  std::vector<double> result;
  for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
    result.push_back(choose(MixUp{alpha}, 8, 8, {.seed = 5, .epoch = 2, .batch = batch}).lambda);
  }
  return result;
}

TEST(MixChoice, LambdaIsBetaDistributed) {
  EXPECT_LT(distance_from_uniform(lambdas(1), 0, 1), 1);
  EXPECT_LT(
      kolmogorov_smirnov(lambdas(0.5),
                         [](double x) { return 2 / std::numbers::pi * std::asin(std::sqrt(x)); }),
      1);
  EXPECT_LT(kolmogorov_smirnov(lambdas(2), [](double x) { return x * x * (3 - 2 * x); }), 1);
  // The check tells distributions apart: numbers of one do not pass as numbers of another.
  EXPECT_GT(distance_from_uniform(lambdas(2), 0, 1), 3);
}

TEST(MixChoice, LambdaHasTheMeanAndVarianceOfBeta) {
  for (const double alpha : {0.001, 0.2, 1.5, 30.0, 1000.0}) {
    double sum = 0;
    double squares = 0;
    for (const double lambda : lambdas(alpha)) {
      ASSERT_GE(lambda, 0) << alpha;
      ASSERT_LE(lambda, 1) << alpha;
      sum += lambda;
      squares += (lambda - 0.5) * (lambda - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kBatches, 0.5, 4 * std::sqrt(variance / kBatches)) << alpha;
    EXPECT_NEAR(squares / kBatches / variance, 1, 0.1) << alpha;
  }
}

TEST(MixChoice, CutMixCutsTheAreaThatLambdaLeaves) {
  constexpr std::int64_t kHeight = 30;
  constexpr std::int64_t kWidth = 40;
  // Lambda is close to a half, so that no box is clipped on both sides.
  std::vector<int> columns(kWidth);
  std::vector<int> rows(kHeight);
  for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
    const BatchKey key{.seed = 5, .batch = batch};
    const MixChoice choice = choose(CutMix{1000}, kHeight, kWidth, key);
    ASSERT_TRUE(choice.box);
    const ImageRegion& box = *choice.box;
    const double drawn = choose(MixUp{1000}, kHeight, kWidth, key).lambda;
    const auto reach = [&](std::int64_t size) {
      return static_cast<std::int64_t>(0.5 * std::sqrt(1 - drawn) * static_cast<double>(size));
    };
    const auto count_center = [](std::vector<int>& counts, std::int64_t first, std::int64_t count,
                                 std::int64_t half) {
      const auto size = static_cast<std::int64_t>(counts.size());
      const std::int64_t center = first > 0 ? first + half : first + count - half;
      ASSERT_GE(center, 0);
      ASSERT_LT(center, size);
      EXPECT_EQ(first, std::max<std::int64_t>(center - half, 0));
      EXPECT_EQ(first + count, std::min(center + half, size));
      ++counts[static_cast<std::size_t>(center)];
    };
    count_center(columns, box.left, box.width, reach(kWidth));
    count_center(rows, box.top, box.height, reach(kHeight));
    EXPECT_DOUBLE_EQ(choice.lambda,
                     1 - static_cast<double>(box.height * box.width) / (kHeight * kWidth));
  }
  EXPECT_LT(chi_square(columns), 1);
  EXPECT_LT(chi_square(rows), 1);
}

TEST(MixChoice, RandomMixIsEitherOfTheTwo) {
  int cuts = 0;
  for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
    cuts += choose(RandomMix{}, 8, 8, {.batch = batch}).box ? 1 : 0;
  }
  EXPECT_NEAR(cuts, kBatches / 2.0, 4 * std::sqrt(kBatches / 4.0));
}

TEST(MixChoice, DependsOnAllOfTheKeyAndOnNothingElse) {
  const BatchKey key{.seed = 1, .epoch = 2, .batch = 3, .rank = 4};
  const auto lambda = [](const BatchKey& other) { return choose(MixUp{}, 8, 8, other).lambda; };
  EXPECT_EQ(lambda(key), lambda(key));
  EXPECT_NE(lambda(key), lambda({.seed = 2, .epoch = 2, .batch = 3, .rank = 4}));
  EXPECT_NE(lambda(key), lambda({.seed = 1, .epoch = 3, .batch = 3, .rank = 4}));
  EXPECT_NE(lambda(key), lambda({.seed = 1, .epoch = 2, .batch = 4, .rank = 4}));
  EXPECT_NE(lambda(key), lambda({.seed = 1, .epoch = 2, .batch = 3, .rank = 5}));
  EXPECT_EQ(choose(BatchMix{}, 8, 8, key), MixChoice{});
}

TEST(MixChoice, RefusesAnAlphaThatHasNoDistribution) {
  EXPECT_NO_THROW(check_mix({}));
  EXPECT_NO_THROW(check_mix(RandomMix{}));
  const struct {
    BatchMix mix;
    const char* message;
  } cases[] = {
      {MixUp{0}, "MixUp needs an alpha from 0.001 to 1000, got 0"},
      {CutMix{-1}, "CutMix needs an alpha from 0.001 to 1000, got -1"},
      {MixUp{std::nan("")}, "MixUp needs an alpha"},
      {RandomMix{.cutmix = {1e9}}, "CutMix needs an alpha"},
      {RandomMix{.mixup = {0}}, "MixUp needs an alpha"},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT(message_of<ConfigError>([&] { check_mix(bad.mix); }),
                ::testing::HasSubstr(bad.message));
  }
}

}  // namespace
}  // namespace lockstep::testing_support
