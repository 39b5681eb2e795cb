#include <lockstep/data/datasets/synthetic_digits.h>

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

constexpr int kPixels = 28 * 28;

bool equal_images(const ImageDataset& a, std::int64_t i, const ImageDataset& b, std::int64_t j) {
  return std::memcmp(a.image(i).pixels, b.image(j).pixels, kPixels) == 0;
}

TEST(SyntheticDigits, HaveTheirSizeShapeAndEqualShares) {
  for (const auto& [split, size] : {std::pair{Split::kTrain, 12'000}, {Split::kTest, 2'000}}) {
    const ImageDataset dataset = make_synthetic_digits(split);
    ASSERT_EQ(dataset.size(), size);
    EXPECT_EQ(dataset.shape(), (ImageShape{1, 28, 28}));
    std::vector<int> counts(10);
    for (std::int64_t i = 0; i < size; ++i) ++counts[dataset.label(i)];
    EXPECT_EQ(counts, std::vector<int>(10, size / 10));
    EXPECT_EQ(dataset.num_classes(), 10);
    EXPECT_EQ(dataset.name(),
              split == Split::kTrain ? "generated digits (train)" : "generated digits (test)");
  }
}

TEST(SyntheticDigits, AnImageIsAFunctionOfSeedSplitAndIndex) {
  const ImageDataset dataset = make_synthetic_digits(Split::kTrain, {.count = 300, .seed = 5});
  const ImageDataset again =
      make_synthetic_digits(Split::kTrain, {.count = 100, .seed = 5, .threads = 3});
  const ImageDataset seed = make_synthetic_digits(Split::kTrain, {.count = 100, .seed = 6});
  const ImageDataset split = make_synthetic_digits(Split::kTest, {.count = 100, .seed = 5});
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(equal_images(dataset, i, again, i))
        << "image " << i << " depends on count or threads";
    EXPECT_FALSE(equal_images(dataset, i, seed, i)) << "image " << i << " ignores the seed";
    EXPECT_FALSE(equal_images(dataset, i, split, i)) << "image " << i << " ignores the split";
    EXPECT_FALSE(equal_images(dataset, i, dataset, i + 10)) << "image " << i << " comes twice";
  }
}

// More threads than images leave some of the threads without work.
TEST(SyntheticDigits, AreDrawnByMoreThreadsThanImages) {
  const ImageDataset dataset = make_synthetic_digits(Split::kTest, {.count = 3, .seed = 5});
  const ImageDataset again =
      make_synthetic_digits(Split::kTest, {.count = 3, .seed = 5, .threads = 7});
  ASSERT_EQ(again.size(), 3);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(equal_images(dataset, i, again, i)) << i;
    EXPECT_EQ(again.label(i), i);
  }
}

// Results of training stay comparable only if the images do not change from version to version.
// Among these are digits of one and of two strokes, open and closed ones, and two with stray marks
// (train 16 and test 4).
TEST(SyntheticDigits, AreTheSameInEveryVersion) {
  // The sums of all squares of 4 x 4 pixels, row by row.
  const struct {
    Split split;
    std::int64_t index;
    std::array<int, 49> sums;
  } cases[] = {
      {Split::kTrain, 5, {12,   8,    3,  12,   9,    10,   8,    19,   11, 544, 2295, 1826, 897,
                          13,   13,   7,  1127, 2996, 1887, 1272, 9,    10, 14,  1538, 3190, 3339,
                          835,  12,   19, 12,   79,   12,   1448, 2069, 20, 10,  14,   2334, 2428,
                          2936, 1279, 6,  12,   9,    88,   1350, 1106, 7,  8}},
      {Split::kTrain, 16, {29,   58, 45, 36,   50,   120,  942,  37,  43, 75,  1848, 2121, 239,
                           851,  28, 59, 2261, 1008, 286,  63,   26,  40, 867, 2074, 1357, 364,
                           24,   44, 48, 1981, 2318, 1034, 2703, 51,  17, 64,  1416, 1266, 277,
                           2636, 40, 51, 44,   38,   1908, 2262, 549, 47, 54}},
      {Split::kTest, 0, {43,  39, 92,  55,   36,   77,   82,   74,  44, 595, 2353, 2023, 74,
                         71,  74, 200, 2390, 204,  1540, 739,  23,  47, 910, 1345, 44,   1692,
                         671, 59, 53,  970,  1198, 100,  2469, 33,  33, 94,  358,  2437, 2128,
                         970, 77, 85,  70,   48,   429,  532,  102, 57, 76}},
      {Split::kTest, 4, {92,   80, 139, 74,  1329, 143,  65,   55,   79,  69,  1202, 2792, 203,
                         599,  96, 44,  589, 1881, 1932, 54,   62,   86,  410, 2568, 1015, 2306,
                         413,  24, 59,  884, 1048, 1194, 2441, 1510, 103, 45,  115,  69,   89,
                         1790, 81, 45,  53,  82,   64,   51,   238,  114, 106}}};
  for (const auto& c : cases) {
    const ImageDataset dataset = make_synthetic_digits(c.split, {.count = 20, .seed = 7});
    const std::uint8_t* image = dataset.image(c.index).pixels;
    std::array<int, 49> sums{};
    for (int i = 0; i < kPixels; ++i) sums[i / 28 / 4 * 7 + i % 28 / 4] += image[i];
    for (int square = 0; square < 49; ++square) {
      // Sines differ in their last bit from library to library, so a byte may differ by one.
      EXPECT_NEAR(sums[square], c.sums[square], 2)
          << dataset.name() << ", image " << c.index << ", row " << square / 7 << ", column "
          << square % 7;
    }
  }
}

// White ink on black, like MNIST (whose mean is 0.13): the images are neither empty nor flooded.
TEST(SyntheticDigits, LookLikeInkOnBlack) {
  const ImageDataset dataset = make_synthetic_digits(Split::kTest);
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const std::uint8_t* image = dataset.image(i).pixels;
    const double mean = std::accumulate(image, image + kPixels, 0.0) / (255.0 * kPixels);
    ASSERT_GT(mean, 0.02) << i;
    ASSERT_LT(mean, 0.5) << i;
  }
}

TEST(SyntheticDigits, RefuseBadOptions) {
  const std::pair<SyntheticDigitsOptions, const char*> cases[] = {
      {{.count = -1}, "count must be from 0 to 10000000, got -1"},
      {{.count = 10'000'001}, "count must be from 0 to 10000000, got 10000001"},
      {{.threads = 0}, "threads must be from 1 to 1024, got 0"},
      {{.threads = 1025}, "threads must be from 1 to 1024, got 1025"}};
  for (const auto& [options, message] : cases) {
    EXPECT_EQ(
        message_of<ConfigError>([&, &o = options] { make_synthetic_digits(Split::kTest, o); }),
        std::string("make_synthetic_digits: ") + message);
  }
}

}  // namespace
}  // namespace lockstep::testing_support
