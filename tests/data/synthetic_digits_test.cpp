#include <lockstep/data/datasets/synthetic_digits.h>

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include <lockstep/core/error.h>

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
  EXPECT_THROW(make_synthetic_digits(Split::kTest, {.count = -1}), ConfigError);
  EXPECT_THROW(make_synthetic_digits(Split::kTest, {.threads = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep::testing_support
