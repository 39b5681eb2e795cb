#include <lockstep/models/autoencoder.h>

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

namespace lockstep {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(Autoencoder, GivesBackImagesOfTheirOwnSize) {
  const torch::NoGradGuard no_grad;
  Autoencoder net;
  for (const auto& [height, width] : {std::pair{160, 160}, {20, 20}, {40, 60}}) {
    const torch::Tensor images = torch::rand({2, 3, height, width});
    EXPECT_EQ(net->encode(images).sizes(), (Sizes{2, 16, height / 20, width / 20}));
    EXPECT_EQ(net->forward(images).sizes(), images.sizes());
    const torch::Tensor other =
        images.to(images.options(), false, true, at::MemoryFormat::ChannelsLast);
    EXPECT_TRUE(net->forward(other).allclose(net->forward(images), 1e-4, 1e-5));
  }
}

// The counts are from PyTorch: sum(p.numel() for p in nn.Sequential(encoder,
// decoder).parameters()).
TEST(Autoencoder, HasPyTorchsNumberOfParameters) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : Autoencoder()->parameters()) count += parameter.numel();
  EXPECT_EQ(count, 7635);
}

TEST(Autoencoder, ComputesTheLayersOfItsDescription) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  Autoencoder net;
  const auto p = net->named_parameters();
  const auto images = torch::randn({2, 3, 40, 60});
  auto code = at::conv2d(images, p["encoder.0.weight"], p["encoder.0.bias"], 1, 2);
  code =
      at::conv2d(at::max_pool2d(code.relu(), 4), p["encoder.3.weight"], p["encoder.3.bias"], 1, 2);
  code = at::max_pool2d(code.relu(), 5);
  EXPECT_TRUE(net->encode(images).allclose(code, 1e-4, 1e-5));
  auto output = at::conv_transpose2d(code, p["decoder.0.weight"], p["decoder.0.bias"], 5);
  output = at::conv_transpose2d(output.relu(), p["decoder.2.weight"], p["decoder.2.bias"],
                                /*stride=*/4, /*padding=*/1, /*output_padding=*/1);
  EXPECT_TRUE(net->forward(images).allclose(output, 1e-4, 1e-5));
}

TEST(Autoencoder, LearnsAnImageByHeart) {
  at::set_num_threads(1);  // the layers are too small for several threads
  torch::manual_seed(0);
  Autoencoder net;
  const torch::Tensor images = torch::rand({1, 3, 40, 40});
  std::vector<double> losses;
  for (int i = 0; i < 60; ++i) {
    net->zero_grad();
    const torch::Tensor loss = at::mse_loss(net->forward(images), images);
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net->parameters()) {
      ASSERT_TRUE(parameter.grad().defined());
      parameter.sub_(parameter.grad(), 0.5);
    }
    losses.push_back(loss.item<double>());
  }
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(Autoencoder, IsCloned) {
  const torch::NoGradGuard no_grad;
  Autoencoder net;
  const auto copy = std::dynamic_pointer_cast<AutoencoderImpl>(net->clone());
  ASSERT_NE(copy, nullptr);
  const torch::Tensor images = torch::rand({1, 3, 20, 20});
  EXPECT_TRUE(copy->forward(images).equal(net->forward(images)));
  for (torch::Tensor& parameter : copy->parameters()) parameter.zero_();
  EXPECT_FALSE(copy->forward(images).equal(net->forward(images)));
}

}  // namespace
}  // namespace lockstep
