#include <lockstep/train/sgd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Conv2d(2, 3, 3), torch::nn::Flatten(),
                               torch::nn::Linear(3 * 4 * 4, 5));
}

class SgdOptionsCase : public ::testing::TestWithParam<SgdOptions> {};

TEST_P(SgdOptionsCase, EqualsTorchsOptimizerOverTwentySteps) {
  const SgdOptions options = GetParam();
  auto ours = make_net();
  auto theirs = make_net();
  Sgd our_optimizer(*ours, options);
  torch::optim::SGD their_optimizer(theirs->parameters(), torch::optim::SGDOptions(options.lr)
                                                              .momentum(options.momentum)
                                                              .weight_decay(options.weight_decay)
                                                              .nesterov(options.nesterov));
  for (int step = 0; step < 20; ++step) {
    const auto x = torch::randn({4, 2, 6, 6});
    our_optimizer.zero_grad();
    ours->forward(x).square().mean().backward();
    our_optimizer.step();
    their_optimizer.zero_grad();
    theirs->forward(x).square().mean().backward();
    their_optimizer.step();
  }
  const auto expected = theirs->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ours->parameters()[i], expected[i], 1e-5, 1e-6))
        << "parameter " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, SgdOptionsCase,
    ::testing::Values(SgdOptions{.lr = 0.1}, SgdOptions{.lr = 0.05, .momentum = 0.9},
                      SgdOptions{.lr = 0.05, .momentum = 0.5, .weight_decay = 0.01},
                      SgdOptions{
                          .lr = 0.02, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
                      SgdOptions{.lr = 0.1, .weight_decay = 0.1}));

TEST(Sgd, SkipsParametersWithoutAGradient) {
  auto net = make_net();
  Sgd optimizer(*net, {.lr = 0.1, .momentum = 0.9});
  std::vector<torch::Tensor> before;
  for (const auto& parameter : net->parameters()) before.push_back(parameter.detach().clone());
  auto bias = net->parameters()[3];
  bias.mutable_grad() = torch::ones_like(bias);
  optimizer.step();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(net->parameters()[i].equal(before[i])) << i;
  EXPECT_TRUE(torch::allclose(bias, before[3] - 0.1));
}

TEST(Sgd, AcceptsAGradientOfAnotherLayout) {
  auto net = make_net();
  Sgd optimizer(*net, {.lr = 1.0});
  auto weight = net->parameters()[2];
  const auto before = weight.detach().clone();
  const auto gradient = torch::randn({48, 5});
  weight.mutable_grad() = gradient.t();
  optimizer.step();
  EXPECT_TRUE(torch::allclose(weight, before - gradient.t()));
}

TEST(Sgd, ZeroGradKeepsTheMemoryOfGradients) {
  auto net = make_net();
  Sgd optimizer(*net, {});
  net->forward(torch::randn({1, 2, 6, 6})).sum().backward();
  const auto gradient = net->parameters()[0].grad();
  ASSERT_GT(gradient.abs().sum().item<double>(), 0);
  optimizer.zero_grad();
  EXPECT_TRUE(net->parameters()[0].grad().is_same(gradient));
  EXPECT_EQ(gradient.abs().sum().item<double>(), 0);
}

TEST(Sgd, LeavesFrozenParametersAlone) {
  auto net = make_net();
  net->parameters()[0].set_requires_grad(false);
  const Sgd optimizer(*net, {.momentum = 0.9});
  EXPECT_THAT(optimizer.momentum(), ::testing::SizeIs(3));
}

TEST(Sgd, RefusesImpossibleOptions) {
  auto net = make_net();
  for (const SgdOptions& options :
       {SgdOptions{.lr = -1}, SgdOptions{.momentum = 1.5}, SgdOptions{.weight_decay = -0.1},
        SgdOptions{.nesterov = true}}) {
    EXPECT_THROW(Sgd(*net, options), ConfigError);
  }
}

}  // namespace
}  // namespace lockstep
