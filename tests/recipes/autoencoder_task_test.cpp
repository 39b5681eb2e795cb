// The loss, the metrics and the pictures of an auto-encoder.
#include <lockstep/recipes/autoencoder_task.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include <lockstep/formats/png.h>
#include <lockstep/models/autoencoder.h>
#include <lockstep/recipes/tensor_picture.h>

namespace lockstep::testing_support {
namespace {

const Normalize kUnit = {.mean = {0, 0, 0}, .std = {1, 1, 1}};

Batch random_batch(std::int64_t size) {
  return {.images = torch::rand({size, 3, 40, 40}),
          .labels = torch::zeros({size}, torch::kLong),
          .size = size};
}

TEST(AutoencoderTask, ComparesItsOutputWithTheImages) {
  torch::manual_seed(0);
  const torch::NoGradGuard no_grad;
  Autoencoder net;
  recipes::AutoencoderTask task(net, kUnit);
  const Batch first = random_batch(3);
  const Batch second = random_batch(5);
  const auto squared_error = [&](const Batch& batch) {
    return (net->forward(batch.images) - batch.images).square().mean().item<double>();
  };
  EXPECT_NEAR(task.training_step(first).item<double>(), squared_error(first), 1e-6);

  Metrics metrics(task.metrics());
  task.evaluation_step(first, metrics);
  task.evaluation_step(second, metrics);
  const Evaluation found = metrics.mean();
  const double mean = (3 * squared_error(first) + 5 * squared_error(second)) / 8;
  EXPECT_NEAR(found.loss, mean, 1e-6);
  EXPECT_EQ(found.samples, 8);
  EXPECT_NEAR(found.value_of("psnr").value(), -10 * std::log10(mean), 1e-3);
}

// Normalised by a deviation of 0.5, values lie in a range of 2.
TEST(AutoencoderTask, MeasuresNoiseInTheRangeOfItsImages) {
  const torch::NoGradGuard no_grad;
  recipes::AutoencoderTask task(Autoencoder(), {.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}});
  const torch::Tensor images = torch::rand({2, 3, 20, 20});
  Metrics metrics(task.metrics());
  task.evaluate(images + 0.1, images, metrics);
  const Evaluation found = metrics.mean();
  EXPECT_NEAR(found.loss, 0.01, 1e-5);
  EXPECT_NEAR(found.value_of("psnr").value(), 10 * std::log10(4 / 0.01), 1e-2);
}

// In 16 bits, the mean of many squares would be imprecise.
TEST(AutoencoderTask, ComparesInFloat32) {
  torch::manual_seed(3);
  recipes::AutoencoderTask task(Autoencoder(), kUnit);
  const torch::Tensor output = torch::rand({2, 3, 20, 20}).to(torch::kBFloat16);
  const torch::Tensor images = torch::rand({2, 3, 20, 20}).to(torch::kBFloat16);
  const double expected =
      (output.to(torch::kDouble) - images.to(torch::kDouble)).square().mean().item<double>();
  const torch::Tensor loss = task.loss(output, images);
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  EXPECT_NEAR(loss.item<double>(), expected, 1e-6);
  Metrics metrics(task.metrics());
  task.evaluate(output, images, metrics);
  const Evaluation found = metrics.mean();
  EXPECT_NEAR(found.loss, expected, 1e-6);
  EXPECT_NEAR(found.value_of("psnr").value(), -10 * std::log10(expected), 1e-4);
}

TEST(AutoencoderTask, ShowsImagesAboveWhatTheNetMakesOfThem) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  Autoencoder net;
  recipes::AutoencoderTask task(net, kUnit);
  const Batch samples = random_batch(2);
  const torch::Tensor outputs = net->forward(samples.images);
  const RunPicture sheet = task.picture(samples).value();
  EXPECT_EQ(sheet.name, "reconstructions");
  constexpr std::int64_t kGap = recipes::AutoencoderTask::kPictureGap;
  ASSERT_EQ(sheet.width, 2 * 40 + kGap);
  ASSERT_EQ(sheet.height, 2 * 40 + kGap);
  // Encodes the sheet as a PNG file and decodes it again.
  const std::string file =
      detail::encode_png(sheet.rgb, static_cast<int>(sheet.width), static_cast<int>(sheet.height));
  detail::PngDecoder decoder;
  decoder.open(std::as_bytes(std::span(file)), "sheet");
  std::vector<std::uint8_t> pixels(sheet.rgb.size());
  decoder.decode({0, 0, sheet.height, sheet.width}, pixels);
  const auto byte = [](const torch::Tensor& images, std::int64_t n, std::int64_t c, std::int64_t y,
                       std::int64_t x) {
    const double value = images[n][c][y][x].item<double>();
    return static_cast<int>(std::lround(255 * std::min(std::max(value, 0.0), 1.0)));
  };
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t c = 0; c < 3; ++c) {
      for (const auto& [y, x] : {std::pair{0, 0}, {0, 39}, {39, 0}, {39, 39}, {17, 23}}) {
        const auto at = [&](std::int64_t row) {
          return static_cast<int>(
              pixels[static_cast<std::size_t>((row * sheet.width + n * (40 + kGap) + x) * 3 + c)]);
        };
        EXPECT_EQ(at(y), byte(samples.images, n, c, y, x));
        EXPECT_EQ(at(40 + kGap + y), byte(outputs, n, c, y, x));
      }
    }
  }
  const auto gap = static_cast<std::size_t>((40 * sheet.width) * 3);
  EXPECT_EQ(pixels[gap], 255) << "white between the rows";
}

TEST(AutoencoderTask, ShowsLargeImagesReduced) {
  const torch::NoGradGuard no_grad;
  recipes::AutoencoderTask task(Autoencoder(), kUnit);
  Batch samples{.images = torch::zeros({2, 3, 520, 1040}), .labels = torch::zeros({2}), .size = 2};
  samples.images[1].narrow(2, 520, 520).fill_(1);  // the right half is white
  const RunPicture sheet = task.picture(samples).value();
  constexpr std::int64_t kGap = recipes::AutoencoderTask::kPictureGap;
  ASSERT_EQ(sheet.width, 2 * 256 + kGap);
  ASSERT_EQ(sheet.height, 2 * 128 + kGap);
  const auto byte = [&](std::int64_t x) {
    return static_cast<int>(sheet.rgb[static_cast<std::size_t>((64 * sheet.width + x) * 3)]);
  };
  EXPECT_EQ(byte(0), 0);
  EXPECT_EQ(byte(256 + kGap + 100), 0);
  EXPECT_EQ(byte(256 + kGap + 160), 255);
}

// The shorter side of a long image keeps a pixel.
TEST(AutoencoderTask, ShowsLongImagesAsLines) {
  const torch::NoGradGuard no_grad;
  recipes::AutoencoderTask task(Autoencoder(), kUnit);
  constexpr std::int64_t kGap = recipes::AutoencoderTask::kPictureGap;
  const RunPicture wide =
      task.picture(
              {.images = torch::ones({1, 3, 20, 6000}), .labels = torch::zeros({1}), .size = 1})
          .value();
  EXPECT_EQ(wide.width, 256);
  EXPECT_EQ(wide.height, 2 + kGap);
  EXPECT_EQ(wide.rgb.at(0), 255);
  const RunPicture high =
      task.picture(
              {.images = torch::zeros({1, 3, 6000, 20}), .labels = torch::zeros({1}), .size = 1})
          .value();
  EXPECT_EQ(high.width, 1);
  EXPECT_EQ(high.height, 2 * 256 + kGap);
  EXPECT_EQ(high.rgb.at(0), 0);
}

TEST(TensorPicture, ShowsAnyNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const torch::Tensor grey = torch::tensor({kInfinity, -kInfinity, std::nanf(""), 0.25F, 2.0F});
  // Transposed, in another precision, and with a gradient.
  const torch::Tensor image =
      grey.view({1, 5, 1}).transpose(1, 2).to(torch::kDouble).set_requires_grad(true);
  const report::Picture picture = recipes::picture_of(image, {.mean = {0}, .std = {1}});
  EXPECT_EQ(picture.width, 5);
  EXPECT_EQ(picture.height, 1);
  EXPECT_THAT(picture.rgb,
              ::testing::ElementsAre(255, 255, 255, 0, 0, 0, 0, 0, 0, 64, 64, 64, 255, 255, 255));
}

TEST(TensorPicture, UndoesNormalize) {
  const Normalize normalize = {.mean = {0.5, 0.25, 0}, .std = {0.5, 2, 1}};
  torch::Tensor image = torch::zeros({3, 1, 2});
  image[0][0][0] = 1.0;   // 255
  image[0][0][1] = -3.0;  // below 0, drawn as black
  image[2][0][1] = 0.1;   // 25.5
  const report::Picture picture = recipes::picture_of(image, normalize);
  EXPECT_THAT(picture.rgb, ::testing::ElementsAre(255, 64, 0, 0, 64, 26));
  EXPECT_THAT(recipes::picture_of(torch::full({1, 1, 1}, 1.0), {.mean = {0}, .std = {0.2}}).rgb,
              ::testing::ElementsAre(51, 51, 51));
}

}  // namespace
}  // namespace lockstep::testing_support
