// DataParallel trains exactly like the bare module.
#include <lockstep/parallel/data_parallel.h>

#include <ostream>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/models/mnist_net.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/data_parallel/chunk_sizes.h>
#include <tests/parallel/data_parallel/data_parallel_nets.h>

namespace lockstep::detail::data_parallel {
namespace {

using testing_support::classes;
using testing_support::copy_state;
using testing_support::cpus;
using testing_support::difference;
using testing_support::expect_equal;
using testing_support::gradients_of_parameters;
using testing_support::normal;
using testing_support::SmallNet;
using testing_support::squared_error;
using testing_support::ThreadsScope;
using testing_support::TiedNet;
using torch::Tensor;

constexpr int kSteps = 5;

Tensor cross_entropy(const Tensor& output, const Tensor& target) {
  return torch::cross_entropy_loss(output, target);
}

struct Trained {
  std::vector<Tensor> gradients;  // after the first step
  std::vector<Tensor> parameters;
  std::vector<Tensor> buffers;
};

// `accumulate` leaves the gradients of one step in the module's parameters.
template <class Accumulate>
Trained train(torch::nn::Module& module, double lr, int steps, const Accumulate& accumulate) {
  Trained result;
  Optimizer optimizer(module, SgdOptions{.lr = lr});
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    accumulate();
    if (step == 0) result.gradients = gradients_of_parameters(module);
    optimizer.step();
  }
  result.parameters = module.parameters();
  result.buffers = module.buffers();
  return result;
}

// Trains the bare module: accumulates the gradients of the parts of the batch one after the other,
// and keeps the running statistics of the first part. One part is the whole batch.
template <class Net>
void accumulate_parts(Net& net, const Tensor& x, const Tensor& y,
                      const std::vector<std::int64_t>& sizes) {
  std::vector<Tensor> before;
  for (const Tensor& buffer : net->buffers()) before.push_back(buffer.clone());
  std::int64_t end = x.size(0);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) continue;
    {
      const torch::NoGradGuard no_grad;
      const auto buffers = net->buffers();
      for (std::size_t k = 0; k < buffers.size(); ++k) buffers[k].copy_(before[k]);
    }
    end -= sizes[i];
    const double share = static_cast<double>(sizes[i]) / static_cast<double>(x.size(0));
    const Tensor loss =
        cross_entropy(net->forward(x.narrow(0, end, sizes[i])), y.narrow(0, end, sizes[i]));
    (loss * share).backward();
  }
}

enum class Form { kOutputs, kLosses };

struct EqualityCase {
  const char* name;
  std::size_t replicas;
  std::int64_t batch;
  std::vector<double> weights = {};
};

void PrintTo(const EqualityCase& c, std::ostream* out) { *out << c.name; }

class DataParallelEquality : public testing::TestWithParam<std::tuple<EqualityCase, Form>> {
 protected:
  // With `in_parts`, the oracle takes the batch part by part, as batch normalisation requires.
  template <class Net>
  void check(Net net, Net oracle, const Tensor& x, const Tensor& y, double lr, bool in_parts,
             double tolerance = 1e-5, int steps = kSteps) {
    const auto& [c, form] = GetParam();
    copy_state(*oracle, *net);
    const DataParallelOptions options{.weights = c.weights};
    DataParallel dp(net, cpus(c.replicas), options);
    const Trained got = train(*net, lr, steps, [&, form = form] {
      if (form == Form::kOutputs) {
        cross_entropy(dp.forward(x), y).backward();
      } else {
        dp.loss(cross_entropy, x, y).backward();
      }
    });
    const auto equal_shares = std::vector<double>(c.replicas, 1.0);
    const auto sizes = in_parts
                           ? chunk_sizes(x.size(0), c.weights.empty() ? equal_shares : c.weights)
                           : std::vector<std::int64_t>{x.size(0)};
    const Trained expected =
        train(*oracle, lr, steps, [&] { accumulate_parts(oracle, x, y, sizes); });
    expect_equal(got.gradients, expected.gradients, tolerance, "gradient");
    expect_equal(got.parameters, expected.parameters, tolerance, "parameter");
    expect_equal(got.buffers, expected.buffers, tolerance, "buffer");
  }

  std::int64_t batch() const { return std::get<0>(GetParam()).batch; }

  // The oracle and the replicas must compute with the same number of threads.
  const ThreadsScope one_thread_{1};
};

INSTANTIATE_TEST_SUITE_P(Cases, DataParallelEquality,
                         testing::Combine(testing::Values(EqualityCase{"Two", 2, 8},
                                                          EqualityCase{"TwoUneven", 2, 7},
                                                          EqualityCase{"Three", 3, 8},
                                                          EqualityCase{"Weights", 3, 9, {3, 1, 2}},
                                                          EqualityCase{"OneRests", 3, 2}),
                                          testing::Values(Form::kOutputs, Form::kLosses)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == Form::kOutputs ? "Outputs"
                                                                             : "Losses");
                         });

TEST_P(DataParallelEquality, MnistNet) {
  MnistNet net(MnistNetOptions{.dropout = false}), oracle(MnistNetOptions{.dropout = false});
  net->to(torch::kFloat64);
  oracle->to(torch::kFloat64);
  check(net, oracle, normal({batch(), 1, 28, 28}, 1).to(torch::kFloat64), classes(batch(), 10, 2),
        0.05, /*in_parts=*/false);
}

// The float32 kernels cause the tolerance: rounding may flip a ReLU or a maximum, after which the
// gradients differ by up to 6e-4. Later steps would magnify the difference.
TEST_P(DataParallelEquality, MnistNetInFloat32) {
  const MnistNetOptions options{.dropout = false};
  check(MnistNet(options), MnistNet(options), normal({batch(), 1, 28, 28}, 1),
        classes(batch(), 10, 2), 0.05, /*in_parts=*/false, 5e-3, /*steps=*/1);
}

TEST_P(DataParallelEquality, TiedEmbedding) {
  const Tensor tokens = classes(batch() * 5, 11, 3).view({batch(), 5});
  check(TiedNet(), TiedNet(), tokens, classes(batch(), 11, 4), 0.1, /*in_parts=*/false);
}

TEST_P(DataParallelEquality, BatchNorm) {
  // Batch normalisation rejects a batch of one sample.
  const std::int64_t samples = batch() * 3;
  check(SmallNet(true), SmallNet(true), normal({samples, 4}, 5), classes(samples, 3, 6), 0.1,
        /*in_parts=*/true);
}

struct ResNetCase {
  std::size_t replicas;
  std::int64_t batch;
  std::vector<double> weights;
};

TEST(DataParallelResNet, TrainsAsTheModuleDoesOnEachPart) {
  const ThreadsScope one_thread(1);
  for (const ResNetCase& c : {ResNetCase{2, 5, {}}, ResNetCase{3, 6, {2, 1, 1}}}) {
    ResNet net = resnet18(ResNetStem::kCifar, 10), oracle = resnet18(ResNetStem::kCifar, 10);
    copy_state(*oracle, *net);
    // With so few samples per normalisation, float32 exceeds the tolerance within five steps.
    net->to(torch::kFloat64);
    oracle->to(torch::kFloat64);
    const Tensor x = normal({c.batch, 3, 16, 16}, 7).to(torch::kFloat64),
                 y = classes(c.batch, 10, 8);
    DataParallel dp(net, cpus(c.replicas), {.weights = c.weights});
    const Trained got = train(*net, 0.01, kSteps, [&] { dp.loss(cross_entropy, x, y).backward(); });
    const auto equal_shares = std::vector<double>(c.replicas, 1.0);
    const auto sizes = chunk_sizes(c.batch, c.weights.empty() ? equal_shares : c.weights);
    const Trained expected =
        train(*oracle, 0.01, kSteps, [&] { accumulate_parts(oracle, x, y, sizes); });
    expect_equal(got.gradients, expected.gradients, 1e-5, "gradient");
    expect_equal(got.parameters, expected.parameters, 1e-5, "parameter");
    expect_equal(got.buffers, expected.buffers, 1e-5, "buffer");
  }
}

TEST(DataParallelEvaluation, OfAResNetIsThatOfTheModule) {
  const ThreadsScope one_thread(1);
  const torch::NoGradGuard no_grad;
  ResNet net = resnet18(ResNetStem::kCifar, 10);
  DataParallel dp(net, {"cpu", "cpu"});
  const Tensor x = normal({4, 3, 32, 32}, 9);
  dp.forward(x);  // training mode: the running statistics change
  net->eval();
  EXPECT_LE(difference(dp.forward(x), net->forward(x)), 1e-5);
}

// Gradients are added in the order of the replicas, whichever finishes first.
TEST(DataParallelRepeated, HasTheSameBits) {
  SmallNet net;
  DataParallel dp(net, cpus(3));
  const Tensor x = normal({8, 4}, 10), y = normal({8, 3}, 11);
  std::vector<Tensor> first;
  for (int i = 0; i < 20; ++i) {
    net->zero_grad();
    dp.loss(squared_error, x, y).backward();
    const auto gradients = gradients_of_parameters(*net);
    if (i == 0) first = gradients;
    for (std::size_t k = 0; k < first.size(); ++k) EXPECT_TRUE(gradients[k].equal(first[k])) << k;
  }
}

TEST(DataParallelStress, AThousandStepsOfASmallNet) {
  SmallNet net, oracle;
  copy_state(*oracle, *net);
  DataParallel dp(net, cpus(3), {.weights = {1, 2, 1}});
  Optimizer optimizer(*net, SgdOptions{.lr = 0.05}), expected(*oracle, SgdOptions{.lr = 0.05});
  const Tensor x = normal({7, 4}, 12), y = normal({7, 3}, 13);
  for (int step = 0; step < 1000; ++step) {
    optimizer.zero_grad();
    (step % 2 == 0 ? dp.loss(squared_error, x, y) : squared_error(dp(x), y)).backward();
    optimizer.step();
    expected.zero_grad();
    squared_error(oracle->forward(x), y).backward();
    expected.step();
  }
  expect_equal(net->parameters(), oracle->parameters(), 1e-3, "parameter");
}

}  // namespace
}  // namespace lockstep::detail::data_parallel
