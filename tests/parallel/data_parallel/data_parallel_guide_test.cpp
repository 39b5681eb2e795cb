// The code of docs/data_parallel.md; the tests check what the guide claims.
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/data_parallel.h>

namespace lockstep::data_parallel_guide {
namespace {

using torch::nn::functional::cross_entropy;

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override {  // makes and registers everything anew
    hidden = register_module("hidden", torch::nn::Linear(6, 16));
    output = register_module("output", torch::nn::Linear(16, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) { return output(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
};
TORCH_MODULE(Net);

// The bare net after two training steps.
Net trained_alone(const torch::Tensor& x, const torch::Tensor& y) {
  torch::manual_seed(1);
  Net net;
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    cross_entropy(net->forward(x), y).backward();
    optimizer.step();
  }
  return net;
}

TEST(DataParallelGuide, BothFormsTrainAsTheNetByItself) {
  const torch::Tensor x = torch::randn({7, 6});
  const torch::Tensor y = torch::randint(4, {7}, torch::kInt64);
  const Net alone = trained_alone(x, y);

  torch::manual_seed(1);
  Net net;
  lockstep::DataParallel dp(net, {"cpu", "cpu"});       // two GPUs: {"cuda:0", "cuda:1"}
  torch::optim::SGD optimizer(net->parameters(), 0.1);  // everything else uses the net itself

  optimizer.zero_grad();
  auto loss = cross_entropy(dp.forward(x), y);  // the outputs are joined on the first device
  loss.backward();                              // the gradients are net's
  optimizer.step();

  const auto criterion = [](const torch::Tensor& output, const torch::Tensor& target) {
    return cross_entropy(output, target);
  };
  optimizer.zero_grad();
  loss = dp.loss(criterion, x, y);  // each device computes the loss of its part
  loss.backward();
  optimizer.step();

  const auto got = net->parameters(), expected = alone->parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(got[i].allclose(expected[i], 1e-4, 1e-6)) << i;
  }
}

// Returns, for each sample, the number of samples that its replica received.
struct CountingNetImpl : torch::nn::Cloneable<CountingNetImpl> {
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x) { return torch::full({x.size(0)}, x.size(0)); }
};
TORCH_MODULE(CountingNet);

TEST(DataParallelGuide, WeightsAreShares) {
  CountingNet net;
  const torch::Tensor x = torch::ones({6, 2});
  lockstep::DataParallel dp(net, {"cpu", "cpu", "cpu"}, {.weights = {3, 1, 2}});
  const torch::Tensor expected = torch::tensor({3, 3, 3, 1, 2, 2}, torch::kInt64);
  EXPECT_TRUE(dp.forward(x).to(torch::kInt64).equal(expected));
}

struct Words {
  torch::Tensor tokens;  // [samples, words]
  std::string language;
};

struct Prediction {
  torch::Tensor scores;                           // [samples, features]
  std::map<std::string, torch::Tensor> averages;  // tensors without dimensions
  std::int64_t samples = 0;
};

struct SentenceNetImpl : torch::nn::Cloneable<SentenceNetImpl> {
  SentenceNetImpl() { SentenceNetImpl::reset(); }
  void reset() override { embedding = register_module("embedding", torch::nn::Embedding(20, 8)); }
  Prediction forward(const Words& words, double temperature) {
    const torch::Tensor features = embedding(words.tokens).mean(1);
    return {.scores = features / temperature,
            .averages = {{words.language, features.mean()}},
            .samples = words.tokens.size(0)};
  }
  torch::nn::Embedding embedding{nullptr};
};
TORCH_MODULE(SentenceNet);

TEST(DataParallelGuide, ArgumentsAndOutputsMayBeStructures) {
  SentenceNet net;
  const torch::Tensor tokens = torch::arange(15).view({5, 3});
  lockstep::DataParallel dp(net, {"cpu", "cpu"});
  const Prediction joined = dp.forward(Words{.tokens = tokens, .language = "en"}, 0.5);
  const Prediction whole = net->forward({.tokens = tokens, .language = "en"}, 0.5);
  EXPECT_TRUE(joined.scores.allclose(whole.scores));
  EXPECT_EQ(joined.averages.at("en").numel(), 2) << "one of each replica";
  EXPECT_EQ(joined.samples, 3) << "of the first replica";
}

struct CarefulNetImpl : torch::nn::Cloneable<CarefulNetImpl> {
  CarefulNetImpl() { CarefulNetImpl::reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(6, 4)); }
  torch::Tensor forward(const torch::Tensor& x) {
    if (x.isnan().any().item<bool>()) throw lockstep::DataError("a sample is not a number");
    return linear(x);
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(CarefulNet);

TEST(DataParallelGuide, AReplicaThatFailsIsNamed) {
  CarefulNet net;
  torch::Tensor x = torch::ones({4, 6});
  x[3][0] = std::numeric_limits<double>::quiet_NaN();
  lockstep::DataParallel dp(net, {"cpu", "cpu"});
  std::string said;
  try {
    dp.forward(x).sum().backward();
  } catch (const lockstep::Error& error) {
    said = error.what();  // "replica 1 on cpu: a sample is not a number"
  }
  EXPECT_EQ(said, "replica 1 on cpu: a sample is not a number");
  EXPECT_EQ(dp.forward(torch::ones({4, 6})).size(0), 4) << "the wrapper can be used further";
}

}  // namespace
}  // namespace lockstep::data_parallel_guide
