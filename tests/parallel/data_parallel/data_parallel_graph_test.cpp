// How autograd handles the outputs and losses of DataParallel.
#include <lockstep/parallel/data_parallel.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/data_parallel/gradient_sum.h>
#include <tests/parallel/data_parallel/data_parallel_nets.h>
#include <tests/support/messages.h>

namespace lockstep::detail::data_parallel {
namespace {

using testing::HasSubstr;
using testing_support::copy_state;
using testing_support::cpus;
using testing_support::difference;
using testing_support::expect_equal;
using testing_support::gradients_of_parameters;
using testing_support::message_of;
using testing_support::normal;
using testing_support::ProbedNet;
using testing_support::SmallNet;
using testing_support::squared_error;
using torch::Tensor;

// A net with replicas, and a bare net with the same weights as its oracle.
struct Pair {
  Pair() { copy_state(*oracle, *net); }
  SmallNet net, oracle;
  DataParallel<SmallNet> dp{net, cpus(2)};
  Tensor x = normal({5, 4}, 1), y = normal({5, 3}, 2);

  void expect_equal_gradients() {
    expect_equal(gradients_of_parameters(*net), gradients_of_parameters(*oracle), 1e-5, "gradient");
  }
};

TEST(DataParallelGraph, GradientsAccumulateInTheModule) {
  Pair p;
  for (int i = 0; i < 3; ++i) {
    p.dp.loss(squared_error, p.x, p.y).backward();
    squared_error(p.oracle->forward(p.x), p.y).backward();
  }
  p.expect_equal_gradients();
}

TEST(DataParallelGraph, OfSeveralForwardsIsWalkedByOneBackward) {
  Pair p;
  const Tensor more = normal({3, 4}, 3), target = normal({3, 3}, 4);
  (p.dp.loss(squared_error, p.x, p.y) + squared_error(p.dp.forward(more), target) +
   p.dp.forward(p.dp.forward(p.x).narrow(1, 0, 1).expand({5, 4})).sum())
      .backward();
  (squared_error(p.oracle->forward(p.x), p.y) + squared_error(p.oracle->forward(more), target) +
   p.oracle->forward(p.oracle->forward(p.x).narrow(1, 0, 1).expand({5, 4})).sum())
      .backward();
  p.expect_equal_gradients();
}

TEST(DataParallelGraph, ServesTorchAutogradGrad) {
  Pair p;
  const auto got = torch::autograd::grad({p.dp.loss(squared_error, p.x, p.y)},
                                         {p.net->last->weight, p.net->first->bias});
  const auto expected = torch::autograd::grad({squared_error(p.oracle->forward(p.x), p.y)},
                                              {p.oracle->last->weight, p.oracle->first->bias});
  expect_equal(got, expected, 1e-5, "gradient");
  EXPECT_FALSE(p.net->last->weight.grad().defined()) << "accumulates nothing";
}

TEST(DataParallelGraph, RunsHooksOnceWithTheWholeGradient) {
  Pair p;
  int calls = 0;
  p.net->first->weight.register_hook([&](const Tensor& gradient) -> Tensor {
    ++calls;
    return gradient * 2;
  });
  p.dp.loss(squared_error, p.x, p.y).backward();
  squared_error(p.oracle->forward(p.x), p.y).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_LE(difference(p.net->first->weight.grad(), p.oracle->first->weight.grad() * 2), 1e-5);
}

TEST(DataParallelGraph, GivesInputsTheirGradients) {
  Pair p;
  const Tensor leaf = p.x.clone().requires_grad_(), other = p.x.clone().requires_grad_();
  p.dp.loss(squared_error, leaf * 2, p.y).backward();
  squared_error(p.oracle->forward(other * 2), p.y).backward();
  EXPECT_LE(difference(leaf.grad(), other.grad()), 1e-5);
  p.expect_equal_gradients();
}

// Each sample has one number, such as its weight in the loss. The replicas have three and two
// samples.
TEST(DataParallelGraph, GivesInputsOfOneDimensionTheirGradients) {
  Pair p;
  const auto weighted = [](const Tensor& output, const Tensor& weights) {
    return (output.square().sum(1) * weights).mean();
  };
  const Tensor mine = normal({5}, 3).requires_grad_(),
               other = mine.detach().clone().requires_grad_();
  p.dp.loss(weighted, p.x, mine).backward();
  weighted(p.oracle->forward(p.x), other).backward();
  expect_equal({mine.grad()}, {other.grad()}, 1e-5, "weights");
  p.expect_equal_gradients();
}

// The gradients of both weights are one tensor, in each replica.
struct SummedWeightsImpl : torch::nn::Cloneable<SummedWeightsImpl> {
  SummedWeightsImpl() { SummedWeightsImpl::reset(); }
  void reset() override {
    a = register_parameter("a", torch::randn({4, 3}));
    b = register_parameter("b", torch::randn({4, 3}));
  }
  Tensor forward(const Tensor& x) { return x.mm(a + b); }
  Tensor a, b;
};
TORCH_MODULE(SummedWeights);

TEST(DataParallelGraph, AddsUpAGradientThatTwoParametersShare) {
  for (const std::int64_t samples : {1, 2, 5, 6}) {  // also with replicas that have none
    SummedWeights net, oracle;
    copy_state(*oracle, *net);
    DataParallel dp(net, cpus(3));
    const Tensor x = normal({samples, 4}, 1), y = normal({samples, 3}, 2);
    for (int backward = 1; backward <= 2; ++backward) {
      dp.loss(squared_error, x, y).backward();
      squared_error(oracle->forward(x), y).backward();
      expect_equal(gradients_of_parameters(*net), gradients_of_parameters(*oracle), 1e-5,
                   lockstep::str(samples, " samples, backward ", backward));
    }
    net->a.mutable_grad().zero_();
    EXPECT_LE(difference(net->b.grad(), oracle->b.grad()), 1e-5) << samples;
  }
}

// The replicas whose part has a negative number do not use the input, or not the weight.
struct ChoosingImpl : torch::nn::Cloneable<ChoosingImpl> {
  ChoosingImpl() { ChoosingImpl::reset(); }
  void reset() override {
    weight = register_parameter("weight", torch::randn({4}));
    bias = register_parameter("bias", torch::randn({4}));
  }
  Tensor forward(const Tensor& x) {
    const bool chooses_bias = x.min().item<float>() < 0;
    return chooses_bias ? bias.expand({x.size(0), 4}) * 2 : x * weight;
  }
  Tensor weight, bias;
};
TORCH_MODULE(Choosing);

TEST(DataParallelGraph, GivesZeroToInputsThatAReplicaDoesNotUse) {
  // For each of three replicas with two rows, whether it uses its input.
  const std::vector<bool> cases[] = {{true, false, true},   {false, true, true},
                                     {true, true, false},   {false, false, true},
                                     {false, false, false}, {true, true, true}};
  for (const std::vector<bool>& uses : cases) {
    Choosing net, oracle;
    copy_state(*oracle, *net);
    DataParallel dp(net, cpus(3));
    Tensor x = normal({6, 4}, 1).abs();
    for (std::size_t r = 0; r < uses.size(); ++r) {
      if (!uses[r]) x.narrow(0, 2 * static_cast<std::int64_t>(r), 2).neg_();
    }
    const Tensor mine = x.clone().requires_grad_(), other = x.clone().requires_grad_();
    const std::string what = lockstep::str(uses[0], uses[1], uses[2]);
    dp.forward(mine).square().sum().backward();
    Tensor sum = torch::zeros({});
    for (const Tensor& part : other.chunk(3)) sum = sum + oracle->forward(part).square().sum();
    sum.backward();
    expect_equal({mine.grad()}, {other.grad()}, 1e-5, "input, " + what);
    expect_equal(gradients_of_parameters(*net), gradients_of_parameters(*oracle), 1e-5, what);
  }
}

// Freezes its first layer when it runs.
struct FreezingNetImpl : torch::nn::Cloneable<FreezingNetImpl> {
  FreezingNetImpl() { FreezingNetImpl::reset(); }
  void reset() override { net = register_module("net", SmallNet()); }
  Tensor forward(const Tensor& x) {
    net->first->weight.requires_grad_(false);
    return net(x);
  }
  SmallNet net{nullptr};
};
TORCH_MODULE(FreezingNet);

TEST(DataParallelGraph, LeavesOutWhatAForwardFreezes) {
  FreezingNet net, oracle;
  copy_state(*oracle, *net);
  DataParallel dp(net, cpus(2));
  const Tensor x = normal({5, 4}, 1);
  dp.forward(x).square().sum().backward();
  oracle->forward(x).square().sum().backward();
  EXPECT_FALSE(net->net->first->weight.grad().defined());
  expect_equal(gradients_of_parameters(*net), gradients_of_parameters(*oracle), 1e-5, "gradient");
}

struct ScaledNetImpl : torch::nn::Cloneable<ScaledNetImpl> {
  ScaledNetImpl() { ScaledNetImpl::reset(); }
  void reset() override { bias = register_parameter("bias", torch::zeros({4})); }
  Tensor forward(const Tensor& x, const Tensor& scale) { return x * scale + bias; }
  Tensor bias;
};
TORCH_MODULE(ScaledNet);

TEST(DataParallelGraph, GivesSharedInputsTheSumOfTheirGradients) {
  ScaledNet net;
  DataParallel dp(net, cpus(2));
  const Tensor x = normal({5, 4}, 5);
  const Tensor scale = torch::scalar_tensor(3.0).requires_grad_();
  dp.forward(x, scale).sum().backward();
  EXPECT_NEAR(scale.grad().item<double>(), x.sum().item<double>(), 1e-4);
  EXPECT_TRUE(net->bias.grad().equal(torch::full({4}, 5.0)));
}

struct DecoderImpl : torch::nn::Cloneable<DecoderImpl> {
  DecoderImpl() { DecoderImpl::reset(); }
  void reset() override { weight = register_parameter("weight", torch::ones({11, 6})); }
  void tie_to(const Tensor& other) { parameters_["weight"] = weight = other; }
  Tensor forward(const Tensor& x) { return torch::linear(x, weight); }
  Tensor weight;
};
TORCH_MODULE(Decoder);

// Ties its weights outside reset(), so that each clone has two separate weights. The gradient of
// the embedding is sparse, that of the decoder is dense.
struct SparselyTiedNetImpl : torch::nn::Cloneable<SparselyTiedNetImpl> {
  SparselyTiedNetImpl() { SparselyTiedNetImpl::reset(); }
  void reset() override {
    embedding = register_module(
        "embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(11, 6).sparse(true)));
    decoder = register_module("decoder", Decoder());
  }
  Tensor forward(const Tensor& tokens) { return decoder(torch::tanh(embedding(tokens))); }
  torch::nn::Embedding embedding{nullptr};
  Decoder decoder{nullptr};
};
TORCH_MODULE(SparselyTiedNet);

TEST(DataParallelGraph, AddsSparseAndDenseGradientsOfATiedWeight) {
  SparselyTiedNet net, oracle;
  copy_state(*oracle, *net);
  for (SparselyTiedNet each : {net, oracle}) each->decoder->tie_to(each->embedding->weight);
  DataParallel dp(net, cpus(2));
  const Tensor tokens = testing_support::classes(6, 11, 7);
  dp.forward(tokens).square().sum().backward();
  oracle->forward(tokens).square().sum().backward();
  EXPECT_LE(difference(net->embedding->weight.grad(), oracle->embedding->weight.grad()), 1e-5);
}

// Two replicas may use the same parameter in different ways.
TEST(GradientSum, TakesSparseAndDenseGradientsInAnyOrder) {
  const Tensor dense = normal({4, 3}, 8);
  const Tensor sparse =
      torch::sparse_coo_tensor(torch::tensor({{1, 1}}), normal({2, 3}, 9), {4, 3});
  const Tensor expected = dense + sparse.to_dense();
  EXPECT_TRUE(sum_gradients({{dense}, {sparse}}, torch::kCPU)[0].equal(expected));
  EXPECT_TRUE(sum_gradients({{sparse}, {dense}}, torch::kCPU)[0].equal(expected));
  const Tensor twice = sum_gradients({{sparse}, {sparse}}, torch::kCPU)[0];
  EXPECT_TRUE(twice.is_sparse());
  EXPECT_LE(difference(twice.to_dense(), 2 * sparse.to_dense()), 1e-6);
}

// The gradients themselves do not change: autograd may have returned one for two parameters.
TEST(GradientSum, SkipsWhatIsUndefinedAndChangesNoGradient) {
  const Tensor a = torch::full({2}, 1.0F), b = torch::full({2}, 10.0F), none;
  const auto sums =
      sum_gradients({{a, none, none, a}, {b, b, none, none}, {b, none, none, b}}, torch::kCPU);
  ASSERT_EQ(sums.size(), 4U);
  EXPECT_TRUE(sums[0].equal(torch::full({2}, 21.0F)));
  EXPECT_TRUE(sums[1].equal(torch::full({2}, 10.0F)));
  EXPECT_FALSE(sums[2].defined());
  EXPECT_TRUE(sums[3].equal(torch::full({2}, 11.0F)));
  EXPECT_TRUE(a.equal(torch::full({2}, 1.0F)));
  EXPECT_TRUE(b.equal(torch::full({2}, 10.0F)));
}

TEST(DataParallelGraph, LeavesOutWhatNoReplicaUses) {
  struct OnlyFirstImpl : torch::nn::Cloneable<OnlyFirstImpl> {
    OnlyFirstImpl() { OnlyFirstImpl::reset(); }
    void reset() override {
      used = register_module("used", torch::nn::Linear(4, 3));
      sometimes = register_module("sometimes", torch::nn::Linear(4, 3));
      never = register_module("never", torch::nn::Linear(4, 3));
    }
    Tensor forward(const Tensor& x) {
      return x[0][0].item<double>() > 0 ? used(x) + sometimes(x) : used(x);
    }
    torch::nn::Linear used{nullptr}, sometimes{nullptr}, never{nullptr};
  };
  const auto module = std::make_shared<OnlyFirstImpl>();
  DataParallel dp(module, cpus(2));
  const Tensor x = torch::cat({torch::full({2, 4}, -1.0), torch::full({2, 4}, 2.0)});
  dp.forward(x).sum().backward();
  EXPECT_TRUE(module->used->bias.grad().equal(torch::full({3}, 4.0)));
  EXPECT_TRUE(module->sometimes->bias.grad().equal(torch::full({3}, 2.0)));
  EXPECT_FALSE(module->never->bias.grad().defined());
}

// The engine requests gradients only for parameters and arguments, so that `scale` would get none.
TEST(DataParallelGraph, RefusesTensorsWhoseGradientsItWouldLose) {
  Pair p;
  const Tensor scale = torch::full({3}, 2.0, torch::requires_grad());
  const auto scaled = [&](const Tensor& output, const Tensor& target) {
    return squared_error(output * scale, target);
  };
  const auto detached = [&](const Tensor& output, const Tensor& target) {
    return squared_error(output * scale.detach(), target);
  };
  // A detached weight gives a graph of the same shape.
  EXPECT_NO_THROW(p.dp.loss(detached, p.x, p.y).backward());
  EXPECT_THAT(message_of<ConfigError>([&] { p.dp.loss(scaled, p.x, p.y); }),
              testing::AllOf(HasSubstr("replicas 0 and 1 both use a tensor of shape [3] that "
                                       "requires a gradient"),
                             HasSubstr("or detach() it")));
  // The alternatives that the message suggests: the output of forward(), an argument, and a tensor
  // that needs no gradient.
  scaled(p.dp.forward(p.x), p.y).backward();
  EXPECT_TRUE(scale.grad().defined());
  const auto with_argument = [](const Tensor& output, const std::pair<Tensor, Tensor>& target) {
    return squared_error(output * target.second, target.first);
  };
  const Tensor rows = torch::full({5, 3}, 2.0, torch::requires_grad());
  p.dp.loss(with_argument, p.x, std::pair(p.y, rows)).backward();
  EXPECT_LE(difference(rows.grad().sum(0), scale.grad()), 1e-5);
  EXPECT_NO_THROW(p.dp.loss(detached, p.x, p.y).backward());
  const torch::NoGradGuard no_grad;
  EXPECT_NO_THROW(p.dp.loss(scaled, p.x, p.y));
}

// The replicas have their own parameters, whose gradients are added to those of the module.
TEST(DataParallelGraph, RefusesTheModulesOwnParametersInACriterion) {
  Pair p;
  const auto penalty = [](const SmallNet& net) { return 0.1 * net->last->weight.square().sum(); };
  const auto penalised = [&](const Tensor& output, const Tensor& target) {
    return squared_error(output, target) + penalty(p.net);
  };
  EXPECT_THAT(message_of<ConfigError>([&] { p.dp.loss(penalised, p.x, p.y); }),
              testing::AllOf(HasSubstr("both use parameter 'last.weight' of the wrapped module"),
                             HasSubstr("add that term to the result of loss()")));
  (p.dp.loss(squared_error, p.x, p.y) + penalty(p.net)).backward();  // as the message suggests
  (squared_error(p.oracle->forward(p.x), p.y) + penalty(p.oracle)).backward();
  p.expect_equal_gradients();
}

// A tensor that the module holds but has not registered is shared by all clones.
TEST(DataParallelGraph, RefusesUnregisteredParameters) {
  const Tensor shift = torch::ones({4}, torch::requires_grad());
  ProbedNet net([shift](const Tensor& x) { return x + shift; });
  DataParallel dp(net, cpus(2));
  EXPECT_THAT(message_of<ConfigError>([&] { dp.forward(torch::ones({4, 4})); }),
              HasSubstr("a tensor of shape [4] that requires a gradient"));
  EXPECT_EQ(dp.forward(torch::ones({1, 4})).size(0), 1) << "one replica alone is not looked at";
}

TEST(DataParallelGraph, CanBeRetained) {
  Pair p;
  const Tensor loss = p.dp.loss(squared_error, p.x, p.y);
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  squared_error(p.oracle->forward(p.x), p.y).mul(2).backward();
  p.expect_equal_gradients();
  EXPECT_THAT(message_of<c10::Error>([&] { loss.backward(); }), HasSubstr("a second time"));
}

TEST(DataParallelGraph, RefusesASecondDerivative) {
  Pair p;
  const Tensor loss = p.dp.loss(squared_error, p.x, p.y);
  EXPECT_THAT(message_of<ConfigError>([&] {
                torch::autograd::grad({loss}, {p.net->first->weight}, {}, true,
                                      /*create_graph=*/true);
              }),
              HasSubstr("DataParallel: a backward with create_graph cannot go through"));
  loss.backward();
  EXPECT_TRUE(p.net->first->weight.grad().defined()) << "the graph is still there";
}

// The critic of a WGAN-GP needs this: each replica differentiates within its own graph.
TEST(DataParallelGraph, MayHaveSecondDerivativesInside) {
  Pair p;
  const auto penalty = [](const Tensor& output, const Tensor& input) {
    const Tensor gradient =
        torch::autograd::grad({output.sum()}, {input}, {}, true, /*create_graph=*/true)[0];
    return gradient.square().sum(1).mean();
  };
  struct PenaltyNetImpl : torch::nn::Cloneable<PenaltyNetImpl> {
    explicit PenaltyNetImpl(SmallNet given) : net(register_module("net", std::move(given))) {}
    void reset() override { net = register_module("net", SmallNet()); }
    std::pair<Tensor, Tensor> forward(const Tensor& x) {
      const Tensor input = x.detach().requires_grad_();
      return {net->forward(input), input};
    }
    SmallNet net;
  };
  const auto module = std::make_shared<PenaltyNetImpl>(p.net);
  DataParallel dp(module, cpus(2));
  const auto criterion = [&](const std::pair<Tensor, Tensor>& output, const Tensor&) {
    return penalty(output.first, output.second);
  };
  dp.loss(criterion, p.x, p.y).backward();
  const Tensor input = p.x.clone().requires_grad_();
  penalty(p.oracle->forward(input), input).backward();
  EXPECT_LE(difference(p.net->first->weight.grad(), p.oracle->first->weight.grad()), 1e-5);
}

// Creates tensors and counts those that are still alive.
class CountedTensors {
 public:
  Tensor ones(at::IntArrayRef sizes) const {
    auto* const values = new float[static_cast<std::size_t>(c10::multiply_integers(sizes))];
    ++*count_;
    const Tensor tensor = torch::from_blob(values, sizes, [count = count_, values](void*) {
      delete[] values;
      --*count;
    });
    tensor.fill_(1);
    return tensor;
  }
  int count() const { return *count_; }

 private:
  std::shared_ptr<std::atomic<int>> count_ = std::make_shared<std::atomic<int>>(0);
};

TEST(DataParallelGraph, IsFreedWithItsOutputs) {
  const CountedTensors counted;
  // The graph of the product keeps the counted factor alive.
  ProbedNet net([&](const Tensor& x) {
    return counted.ones(x.sizes()) * torch::ones(x.sizes(), torch::requires_grad());
  });
  DataParallel dp(net, cpus(2));
  Tensor output = dp.forward(torch::ones({4, 4}));
  EXPECT_EQ(counted.count(), 2);
  output.reset();
  EXPECT_EQ(counted.count(), 0) << "a dropped output";

  Tensor loss = dp.forward(torch::ones({4, 4})).sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(counted.count(), 2) << "retained";
  loss.backward();
  EXPECT_EQ(counted.count(), 0) << "a backward, though the loss is kept";

  const torch::NoGradGuard no_grad;
  output = dp.forward(torch::ones({4, 4}));
  EXPECT_EQ(counted.count(), 0) << "no graph";
}

TEST(DataParallelGraph, OutlivesTheWrapper) {
  SmallNet net;
  std::optional<DataParallel<SmallNet>> dp(std::in_place, net, cpus(2));
  const Tensor loss = dp->forward(normal({4, 4}, 6)).sum();
  dp.reset();
  loss.backward();
  EXPECT_TRUE(net->last->bias.grad().equal(torch::full({3}, 4.0)));
}

// The replicas' parameters share the version counters of the module's parameters.
TEST(DataParallelGraph, NoticesThatAParameterWasChangedInBetween) {
  Pair p;
  const Tensor loss = p.dp.loss(squared_error, p.x, p.y);
  {
    const torch::NoGradGuard no_grad;
    p.net->last->weight.add_(1);
  }
  EXPECT_THAT(message_of<Error>([&] { loss.backward(); }),
              testing::AllOf(HasSubstr("replica 0 on cpu: "),
                             HasSubstr("modified by an inplace operation")));
  p.dp.loss(squared_error, p.x, p.y).backward();
}

TEST(DataParallelGraph, IsNotRecordedWithoutGradMode) {
  Pair p;
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(p.dp.forward(p.x).requires_grad());
    EXPECT_FALSE(p.dp.loss(squared_error, p.x, p.y).requires_grad());
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(p.dp.forward(p.x).is_inference());
  }
  EXPECT_TRUE(p.dp.forward(p.x).requires_grad());
  EXPECT_LE(difference(p.dp.forward(p.x), p.oracle->forward(p.x)), 1e-6);
}

}  // namespace
}  // namespace lockstep::detail::data_parallel
