// Losses as means over the valid elements of all ranks, compared with one process that has the
// whole batch of padded text.
#include <lockstep/parallel/mean_over_ranks.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;

constexpr std::int64_t kWords = 11;
constexpr std::int64_t kSentences = 4;
constexpr std::int64_t kSentenceLength = 6;
constexpr std::int64_t kNoWord = -100;
constexpr int kTextSteps = 6;

struct Text {
  torch::Tensor x, y;
  std::int64_t valid() const { return y.ne(kNoWord).sum().item<std::int64_t>(); }
};

// The ranks' sentences have different lengths, and those of rank 2 are empty.
Text text_of(int rank, int step) {
  const auto numbers = torch::arange(kSentences * kSentenceLength, torch::kInt64)
                           .view({kSentences, kSentenceLength});
  Text text{.x = (numbers * 7 + 3 * rank + step).remainder(kWords),
            .y = (numbers * 5 + rank + 2 * step).remainder(kWords)};
  for (std::int64_t sentence = 0; sentence < kSentences; ++sentence) {
    const std::int64_t length = rank == 2   ? 0
                                : rank == 0 ? kSentenceLength - (sentence + step) % 2
                                            : 1 + (sentence + step) % 2;
    text.y[sentence].narrow(0, length, kSentenceLength - length).fill_(kNoWord);
  }
  return text;
}

Text text_of_all(int ranks, int step) {
  std::vector<torch::Tensor> x, y;
  for (int rank = 0; rank < ranks; ++rank) {
    const Text text = text_of(rank, step);
    x.push_back(text.x);
    y.push_back(text.y);
  }
  return {.x = torch::cat(x), .y = torch::cat(y)};
}

struct TextNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& words) {
    return output(torch::tanh(embedding(words))).flatten(0, 1);
  }
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(kWords, 8));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(8, kWords));
};
TORCH_MODULE(TextNet);

// Has the same weights at each call. The rank threads would share LibTorch's generator.
TextNet make_text_net() {
  const torch::NoGradGuard no_grad;
  TextNet net;
  double phase = 0;
  for (auto& parameter : net->parameters()) {
    const auto numbers = torch::arange(parameter.numel(), torch::kFloat64) * 12.9 + ++phase;
    parameter.copy_(numbers.sin().view(parameter.sizes()));
  }
  return net;
}

torch::Tensor mean_over_words(const torch::Tensor& output, const torch::Tensor& y) {
  return torch::nn::functional::cross_entropy(
      output, y.flatten(), torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kNoWord));
}

torch::Tensor sum_over_words(const torch::Tensor& output, const torch::Tensor& y) {
  return torch::nn::functional::cross_entropy(
      output, y.flatten(),
      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(kNoWord).reduction(
          torch::kSum));
}

const SgdOptions kTextSgd{.lr = 0.2, .momentum = 0.9};

TextNet trained_by_one_process(int ranks) {
  TextNet net = make_text_net();
  Optimizer optimizer(*net, kTextSgd);
  for (int step = 0; step < kTextSteps; ++step) {
    const Text text = text_of_all(ranks, step);
    optimizer.zero_grad();
    mean_over_words(net->forward(text.x), text.y).backward();
    optimizer.step();
  }
  return net;
}

double largest_difference(const torch::nn::Module& a, const torch::nn::Module& b) {
  double largest = 0;
  const auto expected = b.named_parameters();
  for (const auto& item : a.named_parameters()) {
    const auto difference = (item.value() - expected[item.key()]).abs().max().item<double>();
    largest = std::max(largest, difference);
  }
  return largest;
}

TEST(MeanOverRanks, TrainsOnPaddedTextLikeOneProcess) {
  for (const int ranks : {2, 3}) {
    const TextNet expected = trained_by_one_process(ranks);
    for (const char* backend : {"shm", "gloo"}) {
      for (const bool sharded : {false, true}) {
        const auto errors = run_group(ranks, backend, [&](ProcessGroup group) {
          TextNet net = make_text_net();
          DdpOptions options;
          if (sharded) options.parameter_memory = ParameterMemory::kFlat;
          DistributedDataParallel ddp(net, group, options);
          std::optional<ZeroRedundancyOptimizer> zero;
          if (sharded) zero.emplace(ddp.core(), *net, kTextSgd);
          Optimizer whole(*net, kTextSgd);
          MeanOverRanks mean(group);
          for (int step = 0; step < kTextSteps; ++step) {
            const Text text = text_of(group.rank(), step);
            zero ? zero->zero_grad() : whole.zero_grad();
            mean.start(text.y.ne(kNoWord).sum());
            const torch::Tensor loss = mean.of(sum_over_words(ddp.forward(text.x), text.y));
            loss.backward();
            zero ? zero->step() : whole.step();
          }
          const double difference = largest_difference(*net, *expected);
          if (!(difference <= 1e-6)) throw Error(str("a weight differs by ", difference));
          group.barrier();
        });
        EXPECT_EQ(errors, no_errors(ranks)) << backend << (sharded ? ", sharded" : "");
      }
    }
  }
}

// What MeanOverRanks is for.
TEST(MeanOverRanks, IsNotTheMeanOfTheRanksMeans) {
  const TextNet expected = trained_by_one_process(2);
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    TextNet net = make_text_net();
    DistributedDataParallel ddp(net, group);
    Optimizer optimizer(*net, kTextSgd);
    for (int step = 0; step < kTextSteps; ++step) {
      const Text text = text_of(group.rank(), step);
      optimizer.zero_grad();
      mean_over_words(ddp.forward(text.x), text.y).backward();
      optimizer.step();
    }
    if (largest_difference(*net, *expected) < 1e-3) throw Error("the ranks have alike batches");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// One start() counts the elements of all batches of a step. The results' average is the loss.
TEST(MeanOverRanks, CountsAllBatchesOfAStep) {
  constexpr int kRanks = 3, kBatches = 2;
  TextNet expected = make_text_net();
  const Text first = text_of_all(kRanks, 0), second = text_of_all(kRanks, 1);
  const torch::Tensor loss_of_all = mean_over_words(
      expected->forward(torch::cat({first.x, second.x})), torch::cat({first.y, second.y}));
  loss_of_all.backward();
  const auto errors = run_group(kRanks, "shm", [&](ProcessGroup group) {
    TextNet net = make_text_net();
    DistributedDataParallel ddp(net, group);
    MeanOverRanks mean(group);
    std::int64_t valid = 0;
    for (int batch = 0; batch < kBatches; ++batch) valid += text_of(group.rank(), batch).valid();
    mean.start(valid);
    torch::Tensor sum = torch::zeros({});
    for (int batch = 0; batch < kBatches; ++batch) {
      std::optional<DdpCore::NoSync> no_sync;
      if (batch + 1 < kBatches) no_sync.emplace(ddp.core());
      const Text text = text_of(group.rank(), batch);
      const torch::Tensor loss = mean.of(sum_over_words(ddp.forward(text.x), text.y));
      loss.backward();
      sum += loss.detach();
    }
    const auto wanted = expected->named_parameters();
    for (const auto& item : net->named_parameters()) {
      if (!item.value().grad().allclose(wanted[item.key()].grad(), 1e-5, 1e-7)) {
        throw Error("another gradient of " + item.key());
      }
    }
    group.all_reduce(sum, ReduceOp::kAverage);
    if (!sum.allclose(loss_of_all.detach(), 1e-6, 0)) throw Error("another loss");
  });
  EXPECT_EQ(errors, no_errors(kRanks));
}

TEST(MeanOverRanks, TakesCountsOfEveryKind) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    MeanOverRanks mean(group);
    const bool first = group.rank() == 0;
    const auto require = [&](const torch::Tensor& sum, double expected, torch::ScalarType type) {
      const torch::Tensor loss = mean.of(sum);
      LOCKSTEP_CHECK(loss.scalar_type() == type && loss.sizes() == sum.sizes(), "another kind");
      LOCKSTEP_CHECK(loss.item<double>() == expected, loss.item<double>(), ", not ", expected);
    };
    mean.start(first ? 3 : 5);
    require(torch::full({}, 4.0), 4 * 2 / 8.0, torch::kFloat32);
    require(torch::full({1}, 4.0, torch::kFloat64), 1, torch::kFloat64);
    require(torch::full({}, 4.0, torch::kHalf), 1, torch::kFloat32);
    mean.start(torch::full({1, 1}, first ? 0.125 : 0.375));  // weights
    require(torch::full({}, 4.0), 16, torch::kFloat32);
    mean.start(0);  // no valid elements on any rank
    require(torch::zeros({}), 0, torch::kFloat32);
    mean.start(1);
    mean.start(torch::tensor(std::int64_t{1} << 40));  // replaces the count of a skipped step
    require(torch::full({}, 1.0), std::ldexp(1.0, -40), torch::kFloat32);
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(MeanOverRanks, RefusesWhatIsNoCount) {
  const auto errors = run_group(1, "auto", [](ProcessGroup group) {
    MeanOverRanks mean(group);
    EXPECT_THAT(message_of<ConfigError>([&] { mean.of(torch::ones({})); }),
                HasSubstr("of() needs the number of valid elements; call start() before"));
    EXPECT_THAT(message_of<ConfigError>([&] { mean.start(torch::ones({2})); }),
                HasSubstr("a tensor of one element; got Float [2]; use y.ne(padding).sum()"));
    EXPECT_THAT(message_of<ConfigError>([&] { mean.start(torch::Tensor()); }),
                HasSubstr("got an undefined tensor"));
  });
  EXPECT_EQ(errors, no_errors(1));
}

// No rank waits until the deadline, and the next step is a usual one.
TEST(MeanOverRanks, RefusesOnAllRanksWhatOneRankPassed) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = run_group(3, backend, [](ProcessGroup group) {
      MeanOverRanks mean(group);
      const torch::Tensor count = torch::ones(group.rank() == 1 ? 2 : 1);
      const std::string refusal = message_of<ConfigError>([&] {
        mean.start(count);
        mean.of(torch::ones({}));
      });
      const std::string expected =
          group.rank() == 1 ? "MeanOverRanks: start() needs the number of valid elements, a tensor "
                              "of one element; got Float [2]; use y.ne(padding).sum()"
                            : "MeanOverRanks: start() refused the count of 1 of 3 ranks; the "
                              "errors of these ranks say why";
      LOCKSTEP_CHECK(refusal == expected, refusal);
      LOCKSTEP_CHECK(
          message_of<ConfigError>([&] { mean.of(torch::ones({})); }) != "nothing was thrown",
          "of() has no count");
      mean.start(2);
      LOCKSTEP_CHECK(mean.of(torch::ones({})).item<double>() == 0.5, "another scale");
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(3)) << backend;
  }
}

}  // namespace
}  // namespace lockstep
