#include <lockstep/parallel/pipeline/balance.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// The third layer (of 2048 x 2048) has nearly all the work and nearly all the bytes.
torch::nn::Sequential uneven_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::Linear(8, 2048), torch::nn::Linear(2048, 2048),
                               torch::nn::Dropout(), torch::nn::ReLU(), torch::nn::Linear(2048, 4));
}

TEST(Balance, GivesTheCostliestLayerAStageOfItsOwn) {
  at::set_num_threads(1);  // more threads would wait for each other while other tests run
  for (const BalanceBy by : {BalanceBy::kTime, BalanceBy::kBytes}) {
    const Balance choice = balance(uneven_net(), torch::randn({64, 8}), 3, by);
    // Three layers come before the costliest one, three after it.
    EXPECT_EQ(choice.sizes[0], 3);
    EXPECT_EQ(choice.of_layers.size(), 7U);
    ASSERT_EQ(choice.costs.size(), 3U);
    EXPECT_GT(choice.costs[1], choice.costs[0]);
    EXPECT_GT(choice.costs[1], choice.costs[2]);
    EXPECT_THAT(choice.text(), AllOf(HasSubstr(by == BalanceBy::kTime ? "balance by time: 3 + "
                                                                      : "by bytes: 3 + "),
                                     HasSubstr("times its share")));
  }
}

TEST(Balance, SaysTheCostsInOneLine) {
  const Balance by_time{.by = BalanceBy::kTime, .sizes = {5, 3}, .costs = {0.0121, 0.0118}};
  EXPECT_EQ(by_time.text(),
            "balance by time: 5 + 3 layers, 12.1 + 11.8 ms; the largest stage has 1.01 times its "
            "share");
  const Balance by_bytes{.by = BalanceBy::kBytes, .sizes = {1, 2}, .costs = {1048576, 3145728}};
  EXPECT_EQ(by_bytes.text(),
            "balance by bytes: 1 + 2 layers, 1 + 3 MiB; the largest stage has 1.5 times its share");
  const Balance of_nothing{.by = BalanceBy::kBytes, .sizes = {1, 1}, .costs = {0, 0}};
  EXPECT_THAT(of_nothing.text(), HasSubstr("the largest stage has 1 times its share"));
}

TEST(Balance, CountsTheBytesOfParametersGradientsAndOutputs) {
  torch::nn::Sequential net(torch::nn::Linear(8, 4), torch::nn::ReLU(), torch::nn::Linear(4, 2));
  for (auto& parameter : net->ptr(2)->parameters()) parameter.requires_grad_(false);
  const Balance choice = balance(net, torch::ones({5, 8}), 2, BalanceBy::kBytes);
  // 36 parameters with gradients and 20 outputs; 20 outputs; 10 frozen parameters and 10 outputs.
  EXPECT_THAT(choice.of_layers, ElementsAre(4 * (2 * 36 + 20), 4 * 20, 4 * (10 + 10)));
  EXPECT_THAT(choice.sizes, ElementsAre(1, 2));
  EXPECT_THAT(choice.costs, ElementsAre(368, 160));
}

// Records whether its input requires a gradient.
struct NoteImpl : torch::nn::Module {
  explicit NoteImpl(std::vector<bool>& noted) : noted_(noted) {}
  torch::Tensor forward(const torch::Tensor& x) {
    noted_.push_back(x.requires_grad());
    return x;
  }

 private:
  std::vector<bool>& noted_;
};
TORCH_MODULE(Note);

// A convolution's input gradient takes about as long as its weight gradient. In training, the data
// need no input gradient, and neither do the outputs of layers whose parameters are all frozen.
TEST(Balance, TimesNoGradientThatTrainingDoesNotCompute) {
  std::vector<bool> of_data;
  std::vector<bool> of_frozen;
  std::vector<bool> of_trained;
  torch::nn::Sequential net(Note(of_data), torch::nn::Linear(8, 8), Note(of_frozen),
                            torch::nn::Linear(8, 8), Note(of_trained), torch::nn::ReLU());
  for (auto& parameter : net->ptr(1)->parameters()) parameter.requires_grad_(false);
  balance(net, torch::ones({4, 8}), 2);
  EXPECT_THAT(of_data, AllOf(Not(IsEmpty()), Each(false)));
  EXPECT_THAT(of_frozen, AllOf(Not(IsEmpty()), Each(false)));
  EXPECT_THAT(of_trained, AllOf(Not(IsEmpty()), Each(true)));
}

TEST(Balance, LeavesNoTrace) {
  torch::nn::Sequential net = uneven_net();
  net->parameters()[0].mutable_grad() = torch::ones({8, 8});
  std::vector<torch::Tensor> before;
  for (const auto& each : net->buffers()) before.push_back(each.clone());
  torch::manual_seed(3);
  balance(net, torch::ones({16, 8}), 2);
  const auto drawn = torch::rand({1});
  torch::manual_seed(3);
  EXPECT_TRUE(drawn.equal(torch::rand({1})));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(net->buffers()[i].equal(before[i]));
  EXPECT_TRUE(net->parameters()[0].grad().equal(torch::ones({8, 8})));
  EXPECT_FALSE(net->parameters()[1].grad().defined());
}

// The first layer changes its input in place, and so does one whose input needs a gradient.
TEST(Balance, LeavesTheSampleAsItWas) {
  for (const BalanceBy by : {BalanceBy::kTime, BalanceBy::kBytes}) {
    for (const bool requires_grad : {false, true}) {
      torch::nn::Sequential net(torch::nn::ReLU(torch::nn::ReLUOptions(true)),
                                torch::nn::Linear(4, 4),
                                torch::nn::ReLU(torch::nn::ReLUOptions(true)));
      const torch::Tensor before = torch::tensor({{-1.0F, 2.0F, -3.0F, 4.0F}});
      const torch::Tensor sample = before.clone().requires_grad_(requires_grad);
      const auto version = sample._version();
      const Balance choice = balance(net, sample, 2, by);
      EXPECT_EQ(choice.of_layers.size(), 3U);
      EXPECT_TRUE(sample.equal(before)) << sample;
      EXPECT_EQ(sample._version(), version);
      EXPECT_EQ(sample.requires_grad(), requires_grad);
      EXPECT_FALSE(sample.grad().defined());
    }
  }
}

// The last layer rejects this sample, after the layers before it have run.
TEST(Balance, LeavesNoTraceWhereALayerFails) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4),
                            torch::nn::Linear(3, 3));
  const torch::Tensor before = net->buffers()[0].clone();
  EXPECT_THROW(balance(net, torch::ones({8, 4}), 2), std::exception);
  EXPECT_TRUE(net->buffers()[0].equal(before));
}

TEST(Balance, SplitsIntoStagesThatShareTheModules) {
  torch::nn::Sequential net = uneven_net();
  net->eval();
  const auto stages = split(net, {2, 4, 1});
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_THAT(stages[1]->named_parameters().keys(),
              ElementsAre("2.weight", "2.bias", "3.weight", "3.bias"));
  EXPECT_TRUE(stages[2]->parameters()[0].is_same(net->parameters().end()[-2]));
  Pipeline pipe({stages[0], stages[1], stages[2]}, std::vector<torch::Device>(3, torch::kCPU),
                {.micro_batches = 2});
  const torch::Tensor x = torch::randn({8, 8});
  EXPECT_TRUE(pipe.forward(x).allclose(net->forward(x).detach(), 1e-4, 1e-5));
}

TEST(Balance, RefusesWhatCannotBeCut) {
  EXPECT_THROW(balance(uneven_net(), torch::ones({4, 8}), 8), ConfigError);
  EXPECT_EQ(testing_support::message_of<ConfigError>([] { split(uneven_net(), {3, 3}); }),
            "split: sizes 3 + 3 are not those of 7 layers; each stage needs one at least");
  EXPECT_THROW(split(uneven_net(), {7, 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep
