#include <lockstep/data/datasets/random_images.h>

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include <lockstep/core/error.h>

namespace lockstep::testing_support {
namespace {

bool same_pixels(const ImageDataset& a, std::int64_t i, const ImageDataset& b, std::int64_t j) {
  return std::memcmp(a.image(i).pixels, b.image(j).pixels,
                     static_cast<std::size_t>(a.shape().elements())) == 0;
}

TEST(RandomImages, HaveTheTutorialsSizes) {
  const ImageDataset train = data::make_random_images(Split::kTrain);
  EXPECT_EQ(train.size(), 360);
  EXPECT_EQ(train.shape(), (ImageShape{3, 128, 128}));
  EXPECT_EQ(train.num_classes(), 1000);
  EXPECT_EQ(data::make_random_images(Split::kTest).size(), 120);
}

TEST(RandomImages, AreAFunctionOfSeedSplitAndIndex) {
  const data::RandomImagesOptions options = {
      .count = 8, .shape = {3, 5, 7}, .num_classes = 4, .seed = 3};
  data::RandomImagesOptions more = options, other = options;
  more.count = 12;
  other.seed = 4;
  const ImageDataset images = data::make_random_images(Split::kTrain, options);
  const ImageDataset longer = data::make_random_images(Split::kTrain, more);
  const ImageDataset seed = data::make_random_images(Split::kTrain, other);
  const ImageDataset split = data::make_random_images(Split::kTest, options);
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(same_pixels(images, i, longer, i)) << i;
    EXPECT_EQ(images.label(i), longer.label(i)) << i;
    EXPECT_FALSE(same_pixels(images, i, seed, i)) << i;
    EXPECT_FALSE(same_pixels(images, i, split, i)) << i;
    EXPECT_FALSE(same_pixels(images, i, images, (i + 1) % 8)) << i;
  }
}

TEST(RandomImages, AreNeitherDarkNorBright) {
  const ImageDataset images = data::make_random_images(Split::kTest, {.count = 1});
  const std::uint8_t* const pixels = images.image(0).pixels;
  const double mean = std::accumulate(pixels, pixels + 3 * 128 * 128, 0.0) / (3 * 128 * 128);
  EXPECT_NEAR(mean, 127.5, 2);
}

TEST(RandomImages, RefuseBadOptions) {
  EXPECT_THROW(data::make_random_images(Split::kTrain, {.count = -1}), ConfigError);
  EXPECT_THROW(data::make_random_images(Split::kTrain, {.shape = {0, 8, 8}}), ConfigError);
  EXPECT_THROW(data::make_random_images(Split::kTrain, {.num_classes = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep::testing_support
