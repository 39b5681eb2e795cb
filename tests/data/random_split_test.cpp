#include <lockstep/data/datasets/random_split.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/tensor_dataset.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The label of image i is i.
ImageDataset numbered(std::int64_t size) {
  return image_dataset(torch::zeros({size, 1, 1, 1}, torch::kUInt8),
                       torch::arange(size, torch::kInt64), size, "numbers");
}

std::vector<std::int64_t> labels_of(const ImageDataset& dataset) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < dataset.size(); ++i) labels.push_back(dataset.label(i));
  return labels;
}

std::vector<std::vector<std::int64_t>> labels_of(const std::vector<ImageDataset>& parts) {
  std::vector<std::vector<std::int64_t>> labels;
  for (const ImageDataset& part : parts) labels.push_back(labels_of(part));
  return labels;
}

// [list(p) for p in torch.utils.data.random_split(range(11), LENGTHS,
//                                                 torch.Generator().manual_seed(7))]
TEST(RandomSplit, IsPyTorchs) {
  const ImageDataset dataset = numbered(11);
  EXPECT_THAT(labels_of(random_split(dataset, {6, 4, 1}, 7)),
              ElementsAre(ElementsAre(3, 0, 9, 2, 5, 8), ElementsAre(4, 10, 1, 7), ElementsAre(6)));
  EXPECT_THAT(labels_of(random_split(dataset, {0.5, 0.3, 0.2}, 7)),
              ElementsAre(ElementsAre(3, 0, 9, 2, 5, 8), ElementsAre(4, 10, 1), ElementsAre(7, 6)));
  const std::vector<std::int64_t> lengths = {6, 4, 1};
  EXPECT_EQ(labels_of(random_split(dataset, lengths, 7)),
            labels_of(random_split(dataset, {6, 4, 1}, 7)));
  EXPECT_NE(labels_of(random_split(dataset, lengths, 8)),
            labels_of(random_split(dataset, lengths, 7)));
}

// A sum may fall a little short of 1, and the images that rounding leaves go to the first parts.
TEST(RandomSplit, GivesWhatFractionsLeaveToTheFirstParts) {
  const auto sizes_of = [](std::int64_t size, const std::vector<double>& fractions) {
    std::vector<std::int64_t> sizes;
    for (const ImageDataset& part : random_split(numbered(size), fractions)) {
      sizes.push_back(part.size());
    }
    return sizes;
  };
  EXPECT_THAT(sizes_of(11, {1.0 / 3, 1.0 / 3, 1.0 / 3}), ElementsAre(4, 4, 3));
  EXPECT_THAT(sizes_of(11, {0.25, 0.75}), ElementsAre(3, 8));
  EXPECT_THAT(sizes_of(12, std::vector<double>(10, 0.1)),
              ElementsAre(2, 2, 1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(sizes_of(4, {0.5, 0.5 - 5e-10}), ElementsAre(3, 1));
  EXPECT_THAT(message_of<ConfigError>([&] { sizes_of(4, {0.5, 0.5 - 2e-9}); }),
              HasSubstr("the sum of fractions must be"));
}

TEST(RandomSplit, RefusesWhatDoesNotCoverTheDataSet) {
  const ImageDataset dataset = numbered(11);
  const auto of_lengths = [&](const std::vector<std::int64_t>& lengths) {
    return message_of<ConfigError>([&] { random_split(dataset, lengths); });
  };
  const char* const sum = "lengths must sum to the 11 images of numbers";
  EXPECT_THAT(of_lengths({}), HasSubstr(sum));
  EXPECT_THAT(of_lengths({5, 5}), HasSubstr(sum));
  EXPECT_THAT(of_lengths({5, 7}), HasSubstr("got 5, 7"));
  EXPECT_THAT(of_lengths({INT64_MAX, INT64_MAX}), HasSubstr(sum));
  EXPECT_EQ(of_lengths({11, 0}),
            "random_split: part 1 of numbers gets 0 images, expected at least 1");
  EXPECT_EQ(of_lengths({5, 7}),
            "random_split: lengths must sum to the 11 images of numbers, got 5, 7");
  EXPECT_THAT(of_lengths({12, -1}), HasSubstr("gets -1 images"));
  const auto of_fractions = [&](const std::vector<double>& fractions) {
    return message_of<ConfigError>([&] { random_split(dataset, fractions); });
  };
  EXPECT_THAT(of_fractions({0.5, 0.4}), HasSubstr("the sum of fractions must be"));
  EXPECT_THAT(of_fractions({0.5, 0.6}), HasSubstr("the sum of fractions must be"));
  const std::vector<double> above = {0.5, 0.25, 0.25 + 0x1p-52};
  EXPECT_THAT(of_fractions(above),
              HasSubstr("got 1.0000000000000002; correct them, or give lengths"));
  EXPECT_THAT(of_fractions({1.5, -0.5}), HasSubstr("fractions[0] must be"));
  EXPECT_THAT(of_fractions({1.0, 0.0}), HasSubstr("part 1 of numbers gets 0 images"));
  EXPECT_THAT(of_fractions({}), HasSubstr("the sum of fractions"));
}

TEST(TensorDataset, ShowsTheTensorsMemory) {
  const auto images =
      torch::arange(2 * 3 * 4 * 5, torch::kInt64).to(torch::kUInt8).view({2, 3, 4, 5});
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    auto memory = images.contiguous(format);
    const auto* const begin = memory.const_data_ptr<std::uint8_t>();
    auto labels = torch::tensor({1, 0}, torch::kInt64);
    const ImageDataset dataset = image_dataset(memory, labels, 2, "mine", {"no", "yes"});
    memory.reset();
    labels.reset();
    EXPECT_EQ(dataset.name(), "mine");
    EXPECT_THAT(dataset.class_names(), ElementsAre("no", "yes"));
    ASSERT_EQ(dataset.shape(), (ImageShape{3, 4, 5}));
    EXPECT_EQ(dataset.image(0).pixels, begin);
    EXPECT_EQ(dataset.label(0), 1);
    const ImageView view = dataset.image(1);
    for (std::int64_t c = 0; c < 3; ++c) {
      for (std::int64_t y = 0; y < 4; ++y) {
        for (std::int64_t x = 0; x < 5; ++x) {
          EXPECT_EQ(
              view.pixels[c * view.channel_stride + y * view.row_stride + x * view.pixel_stride],
              images[1][c][y][x].item<int>());
        }
      }
    }
  }
}

TEST(TensorDataset, SaysWhatItCannotTake) {
  const auto images = torch::zeros({2, 3, 4, 5}, torch::kUInt8);
  const auto labels = torch::zeros({2}, torch::kInt64);
  struct Case {
    torch::Tensor images;
    torch::Tensor labels;
    const char* message;
  };
  const Case cases[] = {
      {images.to(torch::kFloat32), labels, "images must be Byte [N, C, H, W] on cpu, got Float"},
      {images[0], labels, "got Byte [3, 4, 5] on cpu"},
      {{}, labels, "got an undefined tensor"},
      {images.transpose(2, 3), labels, "images must be contiguous, got strides [60, 20, 1, 5]"},
      {images, labels.to(torch::kInt32), "labels must be contiguous Long [2] on cpu, got Int [2]"},
      {images, torch::zeros({3}, torch::kInt64), "got Long [3] on cpu"},
      {images, torch::zeros({4}, torch::kInt64).slice(0, 0, 4, 2), "must be contiguous Long"},
      {images, labels + 2, "labels[0] is 2, expected 0 to 1"},
      {images.slice(0, 0, 0), labels.slice(0, 0, 0), "got 0 images"},
  };
  EXPECT_THAT(message_of<ConfigError>([&] { image_dataset(images, labels, 2, "x", {"one"}); }),
              HasSubstr("data set x: got 1 names for 2 classes"));
  for (const Case& c : cases) {
    EXPECT_THAT(message_of<ConfigError>([&] { image_dataset(c.images, c.labels, 2); }),
                HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace lockstep::testing_support
