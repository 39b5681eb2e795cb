#include <lockstep/models/resnet.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

TEST(ResNet, HasTheSizeOfTorchvisions) {
  const auto parameters_of = [](const ResNet& net) {
    std::int64_t count = 0;
    for (const auto& parameter : net->parameters()) count += parameter.numel();
    return count;
  };
  EXPECT_EQ(parameters_of(resnet18()), 11'689'512);
  EXPECT_EQ(parameters_of(resnet34()), 21'797'672);
}

// He's initialisation by the outgoing connections, as in torchvision. That by the incoming ones
// would be twice or half as wide here.
TEST(ResNet, DrawsItsWeightsByTheOutgoingConnections) {
  torch::manual_seed(3);
  ResNet net(resnet(ResNetBlock::kBottleneck, {1, 1, 1, 1}));
  const auto parameters = net->named_parameters();
  for (const char* name : {"layer1.0.conv1.weight", "layer1.0.conv3.weight",
                           "layer1.0.downsample.0.weight", "layer2.0.conv2.weight"}) {
    const torch::Tensor& weight = parameters[name];
    const double outgoing = static_cast<double>(weight.size(0) * weight.size(2) * weight.size(3));
    const double expected = std::sqrt(2 / outgoing);
    EXPECT_NEAR(weight.std().item<double>(), expected, 0.1 * expected) << name;
    EXPECT_NEAR(weight.mean().item<double>(), 0, 0.1 * expected) << name;
  }
  EXPECT_EQ(parameters["layer1.0.bn3.weight"].min().item<float>(), 1);
  EXPECT_EQ(parameters["layer1.0.bn3.bias"].abs().max().item<float>(), 0);
}

TEST(ResNet, RefusesAStageWithoutBlocks) {
  EXPECT_THROW(ResNet(resnet(ResNetBlock::kBasic, {2, 0, 2, 2})), ConfigError);
  EXPECT_THROW(ResNet(ResNetOptions{.num_classes = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep
