#include <lockstep/data/loader/batch_mix.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

// Mixup and CutMix as written in torchvision.transforms.v2.
torch::Tensor torchvision_mix(const torch::Tensor& images, const MixChoice& choice) {
  const torch::Tensor rolled = images.roll(1, 0);
  if (!choice.box) return rolled.mul(1 - choice.lambda).add(images.mul(choice.lambda));
  const auto [top, left, rows, columns] = *choice.box;
  torch::Tensor result = images.clone();
  result.narrow(2, top, rows)
      .narrow(3, left, columns)
      .copy_(rolled.narrow(2, top, rows).narrow(3, left, columns));
  return result;
}

const MixChoice kChoices[] = {
    {0.3, {}},
    {0, {}},
    {1, {}},
    {0.75, ImageRegion{1, 2, 5, 3}},
    {1, ImageRegion{4, 4, 0, 3}},
    {0, ImageRegion{0, 0, 7, 9}},
    {0.5, ImageRegion{6, 8, 1, 1}},
};

TEST(MixImages, EqualTorchvisionInEveryTypeAndLayout) {
  torch::manual_seed(0);
  for (const std::int64_t size : {1, 2, 5}) {
    for (const auto type : {torch::kFloat32, torch::kBFloat16, torch::kFloat16, torch::kFloat64}) {
      const torch::Tensor images = torch::randn({size, 3, 7, 9}).to(type);
      const torch::Tensor inputs[] = {
          images.clone(), images.clone(torch::MemoryFormat::ChannelsLast),
          torch::cat({images, images}, 3).narrow(3, 0, 9),  // not contiguous
      };
      for (const MixChoice& choice : kChoices) {
        const torch::Tensor expected = torchvision_mix(images, choice);
        for (const torch::Tensor& input : inputs) {
          torch::Tensor mixed =
              torch::empty_strided(input.sizes(), input.strides(), input.options());
          mixed.copy_(input);
          data::mix_images(mixed, choice);
          EXPECT_TRUE(torch::equal(mixed, expected))
              << size << " of " << type << ", strides " << input.strides() << ", lambda "
              << choice.lambda;
          EXPECT_EQ(mixed.strides(), input.strides());
        }
      }
    }
  }
}

TEST(MixImages, CutMixTakesBytesToo) {
  torch::Tensor images = torch::arange(2 * 3 * 4 * 4).reshape({2, 3, 4, 4}).to(torch::kUInt8);
  const MixChoice choice{0.5, ImageRegion{1, 1, 2, 4 - 1}};
  const torch::Tensor expected = torchvision_mix(images, choice);
  data::mix_images(images, choice);
  EXPECT_TRUE(torch::equal(images, expected));
}

// The whole image and its last row and column, where it is higher than wide.
TEST(MixImages, ABoxMayReachTheEdges) {
  const torch::Tensor images = torch::arange(2 * 3 * 9 * 4).reshape({2, 3, 9, 4});
  const ImageRegion boxes[] = {{0, 0, 9, 4}, {8, 0, 1, 4}, {0, 3, 9, 1}};
  for (const ImageRegion& box : boxes) {
    torch::Tensor mixed = images.clone();
    data::mix_images(mixed, {0.5, box});
    EXPECT_TRUE(torch::equal(mixed, torchvision_mix(images, {0.5, box}))) << mixed;
  }
}

TEST(MixImages, LeavesEmptyBatchesAsTheyAre) {
  const std::vector<std::int64_t> shapes[] = {
      {0, 3, 4, 4}, {2, 0, 4, 4}, {2, 3, 0, 4}, {2, 3, 4, 0}};
  for (const auto& shape : shapes) {
    for (const MixChoice& choice : {MixChoice{0.3, {}}, MixChoice{0.3, ImageRegion{0, 0, 0, 0}}}) {
      torch::Tensor images = torch::zeros(shape);
      data::mix_images(images, choice);
      EXPECT_EQ(images.sizes(), shape);
    }
  }
}

TEST(MixImages, RefusesWhatItCannotMix) {
  const struct {
    torch::Tensor images;
    MixChoice choice;
    const char* message;
  } cases[] = {
      {torch::zeros({3, 8, 8}),
       {0.5, {}},
       "got images of shape [3, 8, 8], expected [size, channels, height"},
      {torch::zeros({2, 3, 8, 8}, torch::kUInt8),
       {0.5, {}},
       "MixUp needs images of floating point, got Byte"},
      {torch::zeros({2, 3, 8, 6}),
       {0.5, ImageRegion{1, 3, 2, 4}},
       "rows 1 to 3 and columns 3 to 7 are not inside of images of 8x6"},
      {torch::zeros({2, 3, 8, 6}), {0.5, ImageRegion{-1, 0, 2, 4}}, "rows -1 to 1"},
      {torch::zeros({2, 3, 8, 6}), {0.5, ImageRegion{0, -1, 2, 4}}, "columns -1 to 3 are not"},
      {torch::zeros({2, 3, 8, 6}), {0.5, ImageRegion{1, 0, -1, 4}}, "rows 1 to 0 and"},
      {torch::zeros({2, 3, 8, 6}), {0.5, ImageRegion{0, 1, 2, -1}}, "columns 1 to 0 are not"},
      {torch::zeros({2, 3, 6, 8}),
       {0.5, ImageRegion{5, 0, 2, 4}},
       "rows 5 to 7 and columns 0 to 4 are not inside of images of 6x8"},
  };
  for (const auto& bad : cases) {
    torch::Tensor images = bad.images;
    EXPECT_THAT(message_of<ConfigError>([&] { data::mix_images(images, bad.choice); }),
                ::testing::HasSubstr(bad.message));
  }
}

TEST(MixLabels, AreTheSharesOfAnImageAndItsPartner) {
  const torch::Tensor labels = torch::tensor({2, 0, 0, 3}, torch::kInt64);
  const MixChoice choice{0.3, {}};
  const torch::Tensor one_hot = torch::one_hot(labels, 4).to(torch::kFloat32);
  const torch::Tensor expected = one_hot.roll(1, 0).mul(1 - 0.3).add(one_hot.mul(0.3));
  const torch::Tensor mixed = data::mix_labels(labels, 4, choice);
  EXPECT_EQ(mixed.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(torch::equal(mixed, expected)) << mixed;
  EXPECT_TRUE(torch::equal(data::mix_labels(labels, 4, {}), one_hot));
  EXPECT_EQ(data::mix_labels(torch::zeros({0}, torch::kInt64), 4, choice).sizes(),
            (std::vector<std::int64_t>{0, 4}));
  // A single image is its own partner, and labels may be every second number of others.
  EXPECT_TRUE(torch::allclose(data::mix_labels(labels.narrow(0, 3, 1), 4, choice),
                              torch::tensor({{0.F, 0.F, 0.F, 1.F}})));
  const torch::Tensor strided = torch::stack({labels, labels + 9}, 1).select(1, 0);
  EXPECT_TRUE(torch::equal(data::mix_labels(strided, 4, choice), expected));
}

TEST(MixLabels, RefusesWhatIsNoClass) {
  const auto labels = [](std::int64_t last) {
    return torch::tensor({0, 1, static_cast<int>(last)}, torch::kInt64);
  };
  for (const std::int64_t bad : {-1, 10}) {
    EXPECT_EQ(message_of<DataError>([&] { data::mix_labels(labels(bad), 10, {}); }),
              "mix_labels: image 2 of the batch has label " + std::to_string(bad) +
                  ", expected one from 0 to 9");
  }
  EXPECT_THAT(
      message_of<ConfigError>([&] { data::mix_labels(torch::zeros({3}), 10, {}); }),
      ::testing::HasSubstr("got labels of type Float and shape [3], expected int64 [size]"));
}

}  // namespace
}  // namespace lockstep::testing_support
