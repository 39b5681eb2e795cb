// Random numbers of a scope are a function of its seed, whichever operator draws them, and when.
#include <lockstep/parallel/pipeline/random_scope.h>

#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::pipeline {
namespace {

namespace F = torch::nn::functional;

struct Draw {
  const char* what;
  std::function<torch::Tensor()> function;
};

const std::vector<Draw>& draws() {
  static const torch::Tensor ones = torch::ones({4, 6});
  static torch::nn::LSTM lstm(torch::nn::LSTMOptions(6, 6).num_layers(2).dropout(0.5));
  static const std::vector<Draw> all = {
      {"dropout", [] { return torch::dropout(ones, 0.5, true); }},
      {"dropout in place",
       [] {
         torch::Tensor copy = ones.clone();
         return at::dropout_(copy, 0.5, true);
       }},
      {"alpha_dropout", [] { return torch::alpha_dropout(ones, 0.5, true); }},
      {"feature_dropout", [] { return torch::feature_dropout(ones, 0.5, true); }},
      {"feature_alpha_dropout", [] { return torch::feature_alpha_dropout(ones, 0.5, true); }},
      {"native_dropout", [] { return std::get<0>(torch::native_dropout(ones, 0.5, true)); }},
      {"rrelu", [] { return torch::rrelu(-ones, 0.1, 0.9, true); }},
      {"bernoulli", [] { return torch::bernoulli(ones * 0.5); }},
      {"bernoulli_ of a number", [] { return ones.clone().bernoulli_(0.5); }},
      {"rand", [] { return torch::rand({6}); }},
      {"randn", [] { return torch::randn({6}); }},
      {"randint", [] { return torch::randint(1000, {6}); }},
      {"randperm", [] { return torch::randperm(100); }},
      {"rand_like", [] { return torch::rand_like(ones); }},
      {"randn_like", [] { return torch::randn_like(ones); }},
      {"random_", [] { return torch::zeros({6}).random_(); }},
      {"random_ below a limit", [] { return torch::zeros({6}).random_(1000); }},
      {"uniform_", [] { return torch::zeros({6}).uniform_(); }},
      {"normal_", [] { return torch::zeros({6}).normal_(); }},
      {"normal", [] { return at::normal(ones, 0.5); }},
      {"log_normal_", [] { return torch::zeros({6}).log_normal_(); }},
      {"exponential_", [] { return torch::zeros({6}).exponential_(); }},
      {"cauchy_", [] { return torch::zeros({6}).cauchy_(); }},
      {"geometric_", [] { return torch::zeros({6}).geometric_(0.1); }},
      {"multinomial", [] { return torch::multinomial(ones, 3); }},
      {"poisson", [] { return torch::poisson(ones * 5); }},
      {"binomial", [] { return torch::binomial(ones * 50, ones * 0.5); }},
      {"_standard_gamma", [] { return torch::_standard_gamma(ones); }},
      {"_sample_dirichlet", [] { return torch::_sample_dirichlet(ones); }},
      {"attention",
       [] {
         const torch::Tensor query = ones.view({1, 1, 4, 6});
         return torch::scaled_dot_product_attention(query, query, query, {}, 0.5);
       }},
      {"LSTM", [] { return std::get<0>(lstm->forward(ones.view({4, 1, 6}))); }},
      {"gumbel_softmax",
       [] { return torch::softmax(-torch::empty_like(ones).exponential_().log() + ones, 1); }},
  };
  return all;
}

torch::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

// As if the generator had been seeded before the first draw, which comes after other work.
TEST(MicroBatchSeed, DiffersInEachArgument) {
  constexpr std::uint64_t kHigh = std::uint64_t{1} << 40;
  const std::uint64_t base = micro_batch_seed(1, 2, 3);
  EXPECT_EQ(base, micro_batch_seed(1, 2, 3));
  for (const std::uint64_t other :
       {micro_batch_seed(2, 2, 3), micro_batch_seed(1, 3, 3), micro_batch_seed(1, 2, 4),
        micro_batch_seed(1, 3, 2), micro_batch_seed(kHigh + 1, 2, 3)}) {
    EXPECT_NE(other, base);
  }
  EXPECT_GT(base >> 32, 0U);
}

TEST(RandomScope, SeedsTheGeneratorBeforeAnyOperatorDraws) {
  for (const Draw& draw : draws()) {
    torch::manual_seed(77);
    const torch::Tensor first = draw.function(), second = torch::rand({3});
    torch::manual_seed(1);
    const torch::Tensor before = generator_state();
    {
      const RandomScope scope(torch::kCPU, {}, 77);
      torch::ones({2}).add_(1);
      EXPECT_TRUE(draw.function().equal(first)) << draw.what;
      EXPECT_TRUE(torch::rand({3}).equal(second)) << draw.what;
      EXPECT_TRUE(scope.drawn().cpu) << draw.what;
      EXPECT_NO_THROW(scope.check()) << draw.what;
    }
    EXPECT_TRUE(generator_state().equal(before)) << draw.what;
  }
}

// Operators that could draw but do not, and those with a generator of their own.
TEST(RandomScope, LeavesTheGeneratorToOthersWhereNothingIsDrawn) {
  const torch::Tensor ones = torch::ones({4, 6});
  const RandomScope other(torch::kCPU, {.cpu = true}, 5);  // the thread must not wait for it
  bool drawn = true;
  std::thread thread([&] {
    const RandomScope scope(torch::kCPU, {}, 77);
    F::dropout(ones, F::DropoutFuncOptions().training(false));
    torch::relu(ones).sum().item<float>();
    torch::rand({3}, at::detail::createCPUGenerator(4));
    drawn = scope.drawn().any();
  });
  thread.join();
  EXPECT_FALSE(drawn);
}

TEST(RandomScope, GivesThreadsThatDrawInTurnTheirOwnNumbers) {
  constexpr int kThreads = 3, kRounds = 20;
  const auto numbers = [] {
    std::vector<torch::Tensor> drawn;
    for (int i = 0; i < 5; ++i) drawn.push_back(torch::rand({100}));
    return torch::cat(drawn);
  };
  std::vector<torch::Tensor> expected;
  for (int t = 0; t < kThreads; ++t) {
    torch::manual_seed(static_cast<std::uint64_t>(t));
    expected.push_back(numbers());
  }
  std::vector<int> wrong(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        const RandomScope scope(torch::kCPU, {}, static_cast<std::uint64_t>(t));
        const auto i = static_cast<std::size_t>(t);
        if (!numbers().equal(expected[i])) ++wrong[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

}  // namespace
}  // namespace lockstep::pipeline
