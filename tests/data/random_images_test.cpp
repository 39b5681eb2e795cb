#include <lockstep/data/datasets/random_images.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <tests/support/messages.h>

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

// A run is repeatable only if the images stay the same from version to version: the class is the
// first number of the image's stream, and each further one is four pixels.
TEST(RandomImages, AreTheNumbersOfAStream) {
  const data::RandomImagesOptions options = {
      .count = 40, .shape = {3, 5, 7}, .num_classes = 4, .seed = 3};
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const ImageDataset images = data::make_random_images(split, options);
    EXPECT_EQ(images.name(),
              split == Split::kTrain ? "generated images (train)" : "generated images (test)");
    ASSERT_EQ(images.size(), 40);
    std::set<std::int64_t> labels;
    for (std::int64_t i = 0; i < images.size(); ++i) {
      PhiloxStream random(3, split == Split::kTrain ? 0 : 1, static_cast<std::uint64_t>(i));
      EXPECT_EQ(images.label(i), random.below(4)) << i;
      const std::uint8_t* const pixels = images.image(i).pixels;
      for (int at = 0; at + 4 <= 3 * 5 * 7; at += 4) {
        const std::uint32_t word = pixels[at] + (pixels[at + 1] << 8) + (pixels[at + 2] << 16) +
                                   (static_cast<std::uint32_t>(pixels[at + 3]) << 24);
        ASSERT_EQ(word, random.next()) << "image " << i << ", byte " << at;
      }
      labels.insert(images.label(i));
    }
    EXPECT_EQ(labels, (std::set<std::int64_t>{0, 1, 2, 3}));
  }
}

TEST(RandomImages, AreNeitherDarkNorBright) {
  const ImageDataset images = data::make_random_images(Split::kTest, {.count = 1});
  const std::uint8_t* const pixels = images.image(0).pixels;
  const double mean = std::accumulate(pixels, pixels + 3 * 128 * 128, 0.0) / (3 * 128 * 128);
  EXPECT_NEAR(mean, 127.5, 2);
}

TEST(RandomImages, RefuseBadOptions) {
  const auto refusal = [](const data::RandomImagesOptions& options) {
    return message_of<ConfigError>([&] { data::make_random_images(Split::kTrain, options); });
  };
  const std::pair<data::RandomImagesOptions, const char*> cases[] = {
      {{.count = -1}, "count must be from 0 to 1000000, got -1"},
      {{.count = 1'000'001}, "count must be from 0 to 1000000, got 1000001"},
      {{.count = 1, .shape = {0, 8, 8}}, "channels must be from 1 to 4, got 0"},
      {{.count = 1, .shape = {5, 8, 8}}, "channels must be from 1 to 4, got 5"},
      {{.count = 1, .shape = {3, 0, 8}}, "height must be from 1 to 4096, got 0"},
      {{.count = 1, .shape = {3, 4097, 8}}, "height must be from 1 to 4096, got 4097"},
      {{.count = 1, .shape = {3, 8, 0}}, "width must be from 1 to 4096, got 0"},
      {{.count = 1, .shape = {3, 8, 4097}}, "width must be from 1 to 4096, got 4097"},
      {{.count = 1, .num_classes = 0}, "num_classes must be from 1 to 1000000, got 0"},
      {{.count = 1, .num_classes = 1'000'001},
       "num_classes must be from 1 to 1000000, got 1000001"}};
  for (const auto& [options, message] : cases) {
    EXPECT_EQ(refusal(options), std::string("make_random_images: ") + message);
  }
  EXPECT_EQ(refusal({.count = 1, .shape = {4, 4096, 1}, .num_classes = 1'000'000}),
            "nothing was thrown");
  EXPECT_EQ(refusal({.count = 1, .shape = {1, 1, 4096}, .num_classes = 1}), "nothing was thrown");
}

}  // namespace
}  // namespace lockstep::testing_support
