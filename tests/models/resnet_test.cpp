#include <lockstep/models/resnet.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing_support::message_of;

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

struct StandardResNet {
  const char* name;
  ResNet (*make)(ResNetStem, std::int64_t);
  ResNetBlock block;
  std::array<std::int64_t, 4> layers;
  std::int64_t features;
};

class StandardResNets : public ::testing::TestWithParam<StandardResNet> {};
INSTANTIATE_TEST_SUITE_P(
    All, StandardResNets,
    ::testing::Values(StandardResNet{"ResNet18", resnet18, ResNetBlock::kBasic, {2, 2, 2, 2}, 512},
                      StandardResNet{"ResNet34", resnet34, ResNetBlock::kBasic, {3, 4, 6, 3}, 512},
                      StandardResNet{
                          "ResNet50", resnet50, ResNetBlock::kBottleneck, {3, 4, 6, 3}, 2048}),
    [](const auto& info) { return info.param.name; });

// Neither argument is its default.
TEST_P(StandardResNets, HaveTheStemAndTheClassesOfTheirArguments) {
  const StandardResNet& c = GetParam();
  const ResNet net = c.make(ResNetStem::kCifar, 7);
  EXPECT_EQ(net->options().block, c.block);
  EXPECT_EQ(net->options().layers, c.layers);
  EXPECT_EQ(net->options().stem, ResNetStem::kCifar);
  EXPECT_EQ(net->options().num_classes, 7);
  const auto parameters = net->named_parameters();
  EXPECT_EQ(parameters["conv1.weight"].sizes(), (std::vector<std::int64_t>{64, 3, 3, 3}));
  EXPECT_EQ(parameters["fc.weight"].sizes(), (std::vector<std::int64_t>{7, c.features}));
  const auto children = net->named_children();
  for (std::size_t stage = 0; stage < c.layers.size(); ++stage) {
    const auto blocks = children["layer" + std::to_string(stage + 1)]->children().size();
    EXPECT_EQ(static_cast<std::int64_t>(blocks), c.layers[stage]) << stage;
  }
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

torch::Tensor stem_of(ResNet& net, const torch::Tensor& images) {
  auto children = net->named_children();
  auto& convolution = *children["conv1"]->as<torch::nn::Conv2d>();
  return children["bn1"]->as<torch::nn::BatchNorm2d>()->forward(convolution.forward(images)).relu();
}

TEST(ResNet, PoolsOnlyBehindTheStemOfImageNet) {
  const torch::NoGradGuard no_grad;
  for (const auto stem : {ResNetStem::kCifar, ResNetStem::kImageNet}) {
    const bool image_net = stem == ResNetStem::kImageNet;
    ResNet net(ResNetOptions{.layers = {1, 1, 1, 1}, .stem = stem, .num_classes = 7});
    net->eval();
    const auto images = torch::randn({2, 3, 64, 64});
    torch::Tensor x = stem_of(net, images);
    EXPECT_EQ(x.size(3), image_net ? 32 : 64);
    if (image_net) x = at::max_pool2d(x, 3, 2, 1);
    auto children = net->named_children();
    std::int64_t side = image_net ? 16 : 64;
    for (const char* layer : {"layer1", "layer2", "layer3", "layer4"}) {
      x = children[layer]->as<torch::nn::Sequential>()->forward(x);
      EXPECT_EQ(x.size(3), side) << layer;
      side /= 2;
    }
    const auto logits = children["fc"]->as<torch::nn::Linear>()->forward(x.mean({2, 3}));
    EXPECT_TRUE(net->forward(images).allclose(logits, 1e-4, 1e-5));
  }
}

// torchvision's bottleneck has its stride in the second convolution.
TEST(ResNet, AddsTheShortcutOfEachBlock) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(8);
  for (const auto block : {ResNetBlock::kBasic, ResNetBlock::kBottleneck}) {
    ResNet net(resnet(block, {2, 1, 1, 1}));
    net->eval();
    const auto parameters = net->named_parameters();
    const auto buffers = net->named_buffers();
    const auto normalized = [&](const torch::Tensor& x, const std::string& convolution,
                                const std::string& norm, std::int64_t stride) {
      const torch::Tensor& weight = parameters[convolution + ".weight"];
      const std::int64_t padding = weight.size(2) / 2;
      const auto y =
          at::conv2d(x, weight, {}, torch::IntArrayRef(stride), torch::IntArrayRef(padding));
      return at::batch_norm(y, parameters[norm + ".weight"], parameters[norm + ".bias"],
                            buffers[norm + ".running_mean"], buffers[norm + ".running_var"],
                            /*training=*/false, 0.1, 1e-5, /*cudnn_enabled=*/false);
    };
    const auto computed = [&](const std::string& name, const torch::Tensor& x,
                              std::int64_t stride) {
      const bool is_basic = block == ResNetBlock::kBasic;
      torch::Tensor y = normalized(x, name + ".conv1", name + ".bn1", is_basic ? stride : 1).relu();
      y = normalized(y, name + ".conv2", name + ".bn2", is_basic ? 1 : stride);
      if (!is_basic) y = normalized(y.relu(), name + ".conv3", name + ".bn3", 1);
      const bool projects = parameters.contains(name + ".downsample.0.weight");
      const torch::Tensor shortcut =
          projects ? normalized(x, name + ".downsample.0", name + ".downsample.1", stride) : x;
      return (y + shortcut).relu();
    };
    const auto x = torch::randn({2, 64, 8, 8});
    auto children = net->named_children();
    const auto first = computed("layer1.1", computed("layer1.0", x, 1), 1);
    const auto ours = children["layer1"]->as<torch::nn::Sequential>()->forward(x);
    EXPECT_TRUE(ours.allclose(first, 1e-4, 1e-4));
    EXPECT_TRUE(children["layer2"]->as<torch::nn::Sequential>()->forward(ours).allclose(
        computed("layer2.0", ours, 2), 1e-4, 1e-4));
  }
}

TEST(ResNet, RefusesAStageWithoutBlocks) {
  for (const std::int64_t count : {0, -1}) {
    for (std::size_t stage = 0; stage < 4; ++stage) {
      std::array<std::int64_t, 4> layers = {1, 1, 1, 1};
      layers[stage] = count;
      EXPECT_EQ(message_of<ConfigError>([&] { ResNet net(resnet(ResNetBlock::kBasic, layers)); }),
                "ResNet: every stage needs a block, got " + std::to_string(count));
    }
  }
  EXPECT_EQ(message_of<ConfigError>([] { ResNet net(ResNetOptions{.num_classes = 0}); }),
            "ResNet: num_classes must be at least 1, got 0");
}

}  // namespace
}  // namespace lockstep
