#include <lockstep/models/resnet.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

ResNetOptions resnet(ResNetBlock block, std::array<std::int64_t, 4> layers) {
  return {.block = block, .layers = layers};
}

TEST(ResNet, StemsScaleTheImageAsTheyShould) {
  torch::NoGradGuard no_grad;
  auto cifar = resnet18(ResNetStem::kCifar, 10);
  EXPECT_EQ(cifar->forward(torch::zeros({2, 3, 32, 32})).sizes(),
            (std::vector<std::int64_t>{2, 10}));
  auto image_net = resnet18();
  EXPECT_EQ(image_net->forward(torch::zeros({2, 3, 64, 64})).sizes(),
            (std::vector<std::int64_t>{2, 1000}));
}

TEST(ResNet, GivesEveryParameterAGradientAndLearns) {
  torch::manual_seed(0);
  auto net = resnet18(ResNetStem::kCifar, 10);
  const auto images = torch::randn({8, 3, 16, 16});
  const auto labels = torch::randint(10, {8}, torch::kLong);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  std::vector<double> losses;
  for (int i = 0; i < 5; ++i) {
    optimizer.zero_grad();
    auto loss = torch::cross_entropy_loss(net->forward(images), labels);
    loss.backward();
    for (const auto& item : net->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
    }
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(ResNet, IsCloned) {
  const torch::NoGradGuard no_grad;
  for (const auto block : {ResNetBlock::kBasic, ResNetBlock::kBottleneck}) {
    ResNet net(resnet(block, {1, 2, 1, 1}));
    const auto copy = std::dynamic_pointer_cast<ResNetImpl>(net->clone());
    ASSERT_NE(copy, nullptr);
    const auto images = torch::randn({2, 3, 32, 32});
    net->eval();
    copy->eval();
    EXPECT_TRUE(copy->forward(images).equal(net->forward(images)));
    for (auto& parameter : copy->parameters()) parameter.zero_();
    EXPECT_FALSE(copy->forward(images).equal(net->forward(images)));
  }
}

TEST(ResNet, RefusesAStageWithoutBlocks) {
  EXPECT_THROW(ResNet(resnet(ResNetBlock::kBasic, {2, 0, 2, 2})), ConfigError);
  EXPECT_THROW(ResNet(ResNetOptions{.num_classes = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep
