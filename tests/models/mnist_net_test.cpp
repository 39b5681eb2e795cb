#include <lockstep/models/mnist_net.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/dropout.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

using torch::Tensor;

// The layers of PyTorch's example one by one, without dropout.
Tensor by_description(MnistNet& net, const Tensor& images) {
  const auto p = net->named_parameters();
  Tensor x = at::conv2d(images, p["conv1.weight"], p["conv1.bias"]);
  x = at::conv2d(at::max_pool2d(x, 2).relu(), p["conv2.weight"], p["conv2.bias"]);
  x = at::max_pool2d(x, 2).relu().flatten(1);
  x = at::linear(x, p["fc1.weight"], p["fc1.bias"]).relu();
  return at::linear(x, p["fc2.weight"], p["fc2.bias"]).log_softmax(1);
}

TEST(MnistNet, HasTheParametersOfTheExample) {
  const MnistNet net;
  std::vector<std::string> names;
  std::int64_t count = 0;
  for (const auto& item : net->named_parameters()) {
    names.push_back(item.key());
    count += item.value().numel();
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                     "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_EQ(count, 21'840);
  EXPECT_EQ(net->named_modules()["conv2_drop"]->as<torch::nn::Dropout2d>()->options.p(), 0.5);
}

TEST(MnistNet, ComputesTheLayersOfTheExample) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(4);
  for (const bool fused : {true, false}) {
    for (const bool training : {true, false}) {
      MnistNet net(MnistNetOptions{.dropout = !training, .fused_kernels = fused});
      net->train(training);
      const Tensor images = torch::randn({3, 1, 28, 28});
      EXPECT_TRUE(net->forward(images).allclose(by_description(net, images), 1e-4, 1e-5))
          << "fused " << fused << ", training without dropout " << training;
    }
  }
}

// In training, half of the channels behind conv2 are 0, and the others twice as large.
TEST(MnistNet, DropsWholeChannelsAndFeatures) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(4);
  for (const bool fused : {true, false}) {
    MnistNet net(MnistNetOptions{.fused_kernels = fused});
    net->train();
    const Tensor x = torch::rand({40, 10, 12, 12});
    const Tensor all = net->forward_layers(x, 1, 2, /*training=*/false);
    const Tensor some = net->forward_layers(x, 1, 2, /*training=*/true);
    const Tensor is_dropped = (some == 0).all(3).all(2);
    const Tensor is_doubled = some.isclose(all * 2, 1e-4, 1e-5).all(3).all(2);
    EXPECT_TRUE(is_dropped.logical_or(is_doubled).all().item<bool>()) << fused;
    const Tensor is_seen = (all != 0).any(3).any(2);
    const Tensor share = is_dropped.logical_and(is_seen).sum().to(torch::kDouble) / is_seen.sum();
    EXPECT_NEAR(share.item<double>(), 0.5, 0.1) << fused;

    const Tensor features = torch::rand({400, 20, 4, 4});
    const Tensor whole = net->forward_layers(features, 2, 3, /*training=*/false);
    const Tensor rest = net->forward_layers(features, 2, 3, /*training=*/true);
    EXPECT_TRUE((rest == 0).logical_or(rest.isclose(whole * 2)).all().item<bool>());
    const Tensor positive = whole > 0;
    const Tensor zeros = (rest == 0).logical_and(positive).sum().to(torch::kDouble);
    EXPECT_NEAR((zeros / positive.sum()).item<double>(), 0.5, 0.1);
  }
}

TEST(MnistNet, GivesFloat32InAnyType) {
  const torch::NoGradGuard no_grad;
  for (const auto type : {torch::kFloat64, torch::kBFloat16}) {
    MnistNet net(MnistNetOptions{.fused_kernels = false});
    net->eval();
    net->to(type);
    const Tensor logs = net->forward(torch::randn({2, 1, 28, 28}).to(type));
    EXPECT_EQ(logs.scalar_type(), torch::kFloat32);
    EXPECT_TRUE(logs.exp().sum(1).allclose(torch::ones({2}), 1e-3, 1e-3));
  }
}

// Only the convolutions have a fused kernel.
TEST(MnistNet, KnowsItsFusedLayers) {
  const MnistNet fused;
  const MnistNet plain(MnistNetOptions{.fused_kernels = false});
  for (int first = 0; first <= MnistNetImpl::kLayers; ++first) {
    for (int end = first; end <= MnistNetImpl::kLayers; ++end) {
      const bool has_convolution = first < 2 && end > first;
      EXPECT_EQ(fused->has_fused_layer(first, end), has_convolution) << first << " to " << end;
      EXPECT_FALSE(plain->has_fused_layer(first, end));
    }
  }
}

TEST(MnistNet, IsClonedWithItsOptions) {
  const torch::NoGradGuard no_grad;
  MnistNet net(MnistNetOptions{.dropout = false, .fused_kernels = false});
  const auto copy = std::dynamic_pointer_cast<MnistNetImpl>(net->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_FALSE(copy->has_fused_layer(0, MnistNetImpl::kLayers));
  copy->train();
  const Tensor images = torch::randn({2, 1, 28, 28});
  EXPECT_TRUE(copy->forward(images).equal(net->forward(images))) << "without dropout";
  for (Tensor& parameter : copy->parameters()) parameter.zero_();
  EXPECT_FALSE(copy->forward(images).equal(net->forward(images)));
}

}  // namespace
}  // namespace lockstep
