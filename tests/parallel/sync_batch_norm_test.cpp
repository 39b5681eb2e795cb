// Batch normalisation over ranks, compared with one process that has the whole batch.
#include <lockstep/parallel/sync_batch_norm.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group;
using torch::Tensor;

Tensor random(at::IntArrayRef shape, std::uint64_t seed, torch::ScalarType type) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn(shape, generator, torch::kFloat64).mul_(3).add_(2).to(type);
}

struct BatchNormCase {
  const char* name;
  std::vector<std::int64_t> batches;  // one size per rank
  std::vector<std::int64_t> shape;    // the shape of one sample
  torch::ScalarType type = torch::kFloat64;
  double tolerance = 1e-10;
  bool channels_last = false;
};

class SyncBatchNormTest : public testing::TestWithParam<BatchNormCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, SyncBatchNormTest,
    testing::Values(BatchNormCase{"Images", {4, 4}, {3, 5, 5}},
                    BatchNormCase{"UnevenBatches", {1, 6, 3}, {3, 4, 4}},
                    BatchNormCase{"OneRankHasNothing", {0, 5}, {2, 3, 3}},
                    BatchNormCase{"Vectors", {2, 3}, {7}},
                    BatchNormCase{"Volumes", {2, 1}, {2, 3, 2, 2}},
                    BatchNormCase{"Float32", {3, 2}, {3, 6, 6}, torch::kFloat32, 2e-6},
                    BatchNormCase{"ChannelsLast", {3, 2}, {4, 6, 6}, torch::kFloat32, 2e-6, true},
                    BatchNormCase{"BFloat16", {3, 2}, {3, 6, 6}, torch::kBFloat16, 2e-2}),
    [](const auto& info) { return info.param.name; });

template <class Impl>
struct Net : torch::nn::Module {
  Net(std::int64_t channels, torch::ScalarType type)
      : norm(register_module("norm", std::make_shared<Impl>(channels))) {
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(torch::linspace(0.5, 2, channels));
    norm->bias.copy_(torch::linspace(-1, 1, channels));
    if (type == torch::kFloat64) to(type);
  }
  Tensor forward(const Tensor& x) { return norm->forward(x); }
  const std::shared_ptr<Impl> norm;  // has the type that the user created
};

void expect_near(const Tensor& got, const Tensor& expected, double tolerance, const char* what) {
  const auto scale = expected.abs().max().clamp_min(1).to(torch::kFloat64).item<double>();
  const auto difference =
      (got.to(torch::kFloat64) - expected.to(torch::kFloat64)).abs().max().item<double>() / scale;
  if (!(difference <= tolerance)) throw Error(str(what, " differs by ", difference));
}

template <class Impl>
void check(const BatchNormCase& c) {
  std::vector<std::int64_t> shape = c.shape;
  std::int64_t total = 0;
  for (const auto batch : c.batches) total += batch;
  shape.insert(shape.begin(), total);
  const auto make = [&](std::uint64_t seed) {
    const Tensor tensor = random(shape, seed, c.type);
    return c.channels_last ? tensor.contiguous(torch::MemoryFormat::ChannelsLast) : tensor;
  };
  const std::int64_t channels = c.shape[0];

  Net<Impl> oracle(channels, c.type);
  const Tensor whole = make(1).requires_grad_();
  const Tensor dy = make(2);
  const Tensor expected = oracle.forward(whole);
  expected.backward(dy);

  const auto size = static_cast<int>(c.batches.size());
  const auto errors = run_group(size, "shm", [&](ProcessGroup group) {
    std::int64_t first = 0;
    for (int rank = 0; rank < group.rank(); ++rank)
      first += c.batches[static_cast<std::size_t>(rank)];
    const auto batch = c.batches[static_cast<std::size_t>(group.rank())];
    Net<Impl> net(channels, c.type);
    const auto synchronized = convert_sync_batchnorm(net, group);
    if (synchronized.size() != 1) throw Error("not converted");
    const Tensor x = whole.detach().narrow(0, first, batch).clone().requires_grad_();
    const Tensor y = net.forward(x);
    y.backward(dy.narrow(0, first, batch));
    if (y.scalar_type() != c.type) throw Error("the output is of another type");
    if (batch > 0) {
      expect_near(y, expected.narrow(0, first, batch), c.tolerance, "the output");
      expect_near(x.grad(), whole.grad().narrow(0, first, batch), c.tolerance, "dx");
    }
    for (const auto& item : oracle.named_parameters()) {
      Tensor sum = net.named_parameters()[item.key()].grad().clone();
      group.all_reduce(sum);
      expect_near(sum, item.value().grad(), c.tolerance, "a parameter's gradient");
    }
    for (const auto& item : oracle.named_buffers()) {
      expect_near(net.named_buffers()[item.key()], item.value(), c.tolerance,
                  "a running statistic");
    }
  });
  EXPECT_EQ(errors, no_errors(size));
}

TEST_P(SyncBatchNormTest, IsThatOfOneProcessWithTheWholeBatch) {
  switch (GetParam().shape.size()) {
    case 1:
      return check<torch::nn::BatchNorm1dImpl>(GetParam());
    case 3:
      return check<torch::nn::BatchNorm2dImpl>(GetParam());
    default:
      return check<torch::nn::BatchNorm3dImpl>(GetParam());
  }
}

// --- Higher derivatives

// A critic as in WGAN-GP, with several normalisations, whose reductions must run in one order on
// all ranks.
struct CriticImpl : torch::nn::Module {
  CriticImpl() {
    const torch::NoGradGuard no_grad;
    to(torch::kFloat64);
    double phase = 0;
    for (auto& parameter : parameters()) {
      const Tensor numbers = torch::arange(parameter.numel(), torch::kFloat64) * 1.7 + ++phase;
      parameter.copy_(numbers.sin().view(parameter.sizes()));
    }
  }
  Tensor forward(const Tensor& x) {
    return last(torch::tanh(norm2(middle(torch::tanh(norm1(first(x)))))));
  }
  // Built from differentiable operations. The third derivative of LibTorch's batch_norm is wrong:
  // its second derivative treats the statistics as constants.
  Tensor composed(const Tensor& x) {
    const auto normalised = [](const torch::nn::BatchNorm1d& norm, const Tensor& values) {
      const Tensor centered = values - values.mean(0);
      const Tensor y = centered / (centered.square().mean(0) + norm->options.eps()).sqrt();
      return norm->weight.defined() ? y * norm->weight + norm->bias : y;
    };
    return last(torch::tanh(normalised(norm2, middle(torch::tanh(normalised(norm1, first(x)))))));
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(5, 4));
  torch::nn::BatchNorm1d norm1 = register_module("norm1", torch::nn::BatchNorm1d(4));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(4, 3));
  torch::nn::BatchNorm1d norm2 = register_module(
      "norm2", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(3).affine(false)));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(3, 1));
};
TORCH_MODULE(Critic);

// With `order` 2, the loss includes the gradient penalty of WGAN-GP: how far the norm of each
// sample's gradient is from 1. With 3, it includes the penalty's gradient penalty, and so on.
Tensor loss_with_penalties(const Tensor& output, const Tensor& x, int order) {
  Tensor loss = output.sum();
  Tensor last = loss;
  for (int i = 1; i < order; ++i) {
    const Tensor gradient = torch::autograd::grad({last}, {x}, /*grad_outputs=*/{},
                                                  /*retain_graph=*/true, /*create_graph=*/true)[0];
    last = (gradient.norm(2, 1) - 1).square().sum();
    loss = loss + last;
  }
  return loss;
}

struct PenaltyCase {
  const char* name;
  std::vector<std::int64_t> batches;  // one size per rank
  int order;
};

class SyncBatchNormPenalty : public testing::TestWithParam<PenaltyCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, SyncBatchNormPenalty,
                         testing::Values(PenaltyCase{"First", {3, 3}, 1},
                                         PenaltyCase{"Second", {3, 3}, 2},
                                         PenaltyCase{"Uneven", {2, 5, 3}, 2},
                                         PenaltyCase{"OneRankHasNothing", {0, 4}, 2},
                                         PenaltyCase{"Third", {4, 2}, 3}),
                         [](const auto& info) { return info.param.name; });

TEST_P(SyncBatchNormPenalty, IsThatOfOneProcessWithTheWholeBatch) {
  const auto& batches = GetParam().batches;
  const std::int64_t total = std::accumulate(batches.begin(), batches.end(), std::int64_t{0});
  Critic oracle;
  const Tensor whole = random({total, 5}, 3, torch::kFloat64).requires_grad_();
  loss_with_penalties(oracle->composed(whole), whole, GetParam().order).backward();

  const auto size = static_cast<int>(batches.size());
  const auto errors = run_group(size, "shm", [&](ProcessGroup group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const std::int64_t first =
        std::accumulate(batches.begin(), batches.begin() + group.rank(), std::int64_t{0});
    Critic net;
    DistributedDataParallel ddp(net, group, {.sync_batch_norm = true});
    const Tensor x = whole.detach().narrow(0, first, batches[rank]).clone().requires_grad_();
    loss_with_penalties(ddp.forward(x), x, GetParam().order).backward();
    if (batches[rank] > 0)
      expect_near(x.grad(), whole.grad().narrow(0, first, batches[rank]), 1e-10, "dx");
    for (const auto& item : oracle->named_parameters()) {
      expect_near(net->named_parameters()[item.key()].grad() * size, item.value().grad(), 1e-10,
                  item.key().c_str());
    }
  });
  EXPECT_EQ(errors, no_errors(size));
}

// A backward with create_graph, on images, with and without a weight and a bias.
TEST(SyncBatchNormPenaltyOfImages, IsThatOfOneProcessWithTheWholeBatch) {
  constexpr double kEps = 0.25;
  const auto made = [](bool is_given, double first, double last) {
    if (!is_given) return Tensor();
    Tensor values = torch::linspace(first, last, 3, torch::kFloat64);
    return values.requires_grad_();
  };
  const auto penalised = [](const Tensor& y, const Tensor& x) {
    const Tensor loss = y.pow(3).sum();
    const Tensor gradient = torch::autograd::grad({loss}, {x}, /*grad_outputs=*/{},
                                                  /*retain_graph=*/true, /*create_graph=*/true)[0];
    return loss + gradient.square().sum();
  };
  for (const auto& [has_weight, has_bias] :
       {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    const Tensor whole = random({5, 3, 2, 4}, 6, torch::kFloat64).requires_grad_();
    const Tensor weight = made(has_weight, 0.5, 2), bias = made(has_bias, -1, 1);
    const Tensor centered = whole - whole.mean({0, 2, 3}, /*keepdim=*/true);
    Tensor y = centered / (centered.square().mean({0, 2, 3}, /*keepdim=*/true) + kEps).sqrt();
    if (has_weight) y = y * weight.view({1, 3, 1, 1});
    if (has_bias) y = y + bias.view({1, 3, 1, 1});
    penalised(y, whole).backward();
    const auto errors =
        run_group(2, "shm", [&, has_weight = has_weight, has_bias = has_bias](ProcessGroup group) {
          const Tensor none, own_weight = made(has_weight, 0.5, 2),
                             own_bias = made(has_bias, -1, 1);
          const std::int64_t first = group.rank() == 0 ? 0 : 3, rows = group.rank() == 0 ? 3 : 2;
          const Tensor x = whole.detach().narrow(0, first, rows).clone().requires_grad_();
          penalised(sync_batch_norm(x, own_weight, own_bias, none, none, 0.1, kEps, group), x)
              .backward();
          expect_near(x.grad(), whole.grad().narrow(0, first, rows), 1e-9, "dx");
          for (const auto& [own, expected] : {std::pair{own_weight, weight}, {own_bias, bias}}) {
            if (!own.defined()) continue;
            Tensor sum = own.grad().clone();
            group.all_reduce(sum);
            expect_near(sum, expected.grad(), 1e-9, "a parameter's gradient");
          }
        });
    EXPECT_EQ(errors, no_errors(2)) << has_weight << has_bias;
  }
}

// A backward that records itself for higher derivatives takes two more sums over the ranks.
TEST(SyncBatchNorm, ReducesOnceInABackwardWithoutAGraph) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const auto completed = [&](CallKind kind) {
      const auto calls = group.recorded_calls(Clock::time_point());
      return std::count_if(calls.begin(), calls.end(),
                           [kind](const RecordedCall& each) { return each.call.kind == kind; });
    };
    const auto require = [](const char* what, std::ptrdiff_t got, std::ptrdiff_t expected) {
      if (got != expected) throw Error(str(what, ": ", got, ", expected ", expected));
    };
    for (const bool create_graph : {false, true}) {
      const auto gathers = completed(CallKind::kAllGather);
      const auto reductions = completed(CallKind::kAllReduce);
      const Tensor none;
      const Tensor x = random({4, 3}, static_cast<std::uint64_t>(group.rank()), torch::kFloat64)
                           .requires_grad_();
      const Tensor y = sync_batch_norm(x, none, none, none, none, 0.1, 1e-5, group);
      require("gathers in forward", completed(CallKind::kAllGather) - gathers, 1);
      require("reductions in forward", completed(CallKind::kAllReduce) - reductions, 0);
      torch::autograd::grad({y.square().sum()}, {x}, /*grad_outputs=*/{},
                            /*retain_graph=*/create_graph, create_graph);
      require(create_graph ? "reductions with a graph" : "reductions without a graph",
              completed(CallKind::kAllReduce) - reductions, create_graph ? 3 : 1);
      require("gathers in backward", completed(CallKind::kAllGather) - gathers, 1);
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Supported normalisations

TEST(SyncBatchNorm, RunningStatisticsFollowTheMomentumInEachForward) {
  const Tensor batches[] = {random({6, 3, 2}, 8, torch::kFloat64),
                            random({6, 3, 2}, 9, torch::kFloat64) * 2};
  const Tensor mean_before = torch::linspace(-1, 1, 3, torch::kFloat64);
  const Tensor variance_before = torch::linspace(0.5, 4, 3, torch::kFloat64);
  for (const double momentum : {0.0, 0.3, 1.0}) {
    Tensor mean = mean_before, variance = variance_before;
    for (const Tensor& batch : batches) {
      mean = mean * (1 - momentum) + batch.mean({0, 2}) * momentum;
      variance = variance * (1 - momentum) + batch.var({0, 2}, /*unbiased=*/true) * momentum;
    }
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      const Tensor none, own_mean = mean_before.clone(), own_variance = variance_before.clone();
      const Tensor only_mean = mean_before.clone(), only_variance = variance_before.clone();
      const std::int64_t first = group.rank() == 0 ? 0 : 4, rows = group.rank() == 0 ? 4 : 2;
      for (const Tensor& batch : batches) {
        const Tensor x = batch.narrow(0, first, rows);
        sync_batch_norm(x, none, none, own_mean, own_variance, momentum, 1e-5, group);
        sync_batch_norm(x, none, none, only_mean, none, momentum, 1e-5, group);
        sync_batch_norm(x, none, none, none, only_variance, momentum, 1e-5, group);
      }
      for (const Tensor& got : {own_mean, only_mean}) expect_near(got, mean, 1e-12, "the mean");
      for (const Tensor& got : {own_variance, only_variance})
        expect_near(got, variance, 1e-12, "the variance");
    });
    EXPECT_EQ(errors, no_errors(2)) << momentum;
  }
}

TEST(SyncBatchNorm, HandlesMayBeMoved) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    torch::nn::BatchNorm1d one(3), two(3);
    const Tensor x = random({4, 3}, static_cast<std::uint64_t>(group.rank()), torch::kFloat32);
    const Tensor alone = one->forward(x).detach();
    auto stays = convert_sync_batchnorm(*two, group);
    {
      auto of_one = convert_sync_batchnorm(*one, group);
      SyncBatchNorm moved(std::move(of_one));
      if (moved.size() != 1) throw Error("the new handle holds no normalisation");
      stays = std::move(moved);  // ends what it held before
    }
    if (stays.size() != 1) throw Error("the assigned handle holds no normalisation");
    if (torch::allclose(one->forward(x), alone)) throw Error("ended with a handle moved from");
    if (!torch::allclose(two->forward(x), alone)) throw Error("two is still synchronised");
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The module keeps its tensor objects in another type and in other memory.
TEST(SyncBatchNorm, FollowsItsModuleToAnotherTypeAndMemory) {
  const Tensor whole = random({6, 3}, 9, torch::kFloat64);
  torch::nn::BatchNorm1d oracle(3);
  oracle->to(torch::kFloat64);
  const Tensor expected = oracle->forward(whole).detach();
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::BatchNorm1d norm(3);
    const auto synchronized = convert_sync_batchnorm(*norm, group);
    norm->to(torch::kFloat64);
    norm->running_mean.set_data(norm->running_mean.clone());
    const std::int64_t first = 3 * group.rank();
    const Tensor output = norm->forward(whole.narrow(0, first, 3)).detach();
    expect_near(output, expected.narrow(0, first, 3), 1e-10, "the output");
    expect_near(norm->running_mean, oracle->running_mean, 1e-10, "the mean");
    expect_near(norm->running_var, oracle->running_var, 1e-10, "the variance");
  });
  EXPECT_EQ(errors, no_errors(2));
}

// A module may be registered in several places. It is one normalisation.
TEST(SyncBatchNorm, CountsASharedNormOnce) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const torch::nn::BatchNorm1d shared(3);
    torch::nn::Sequential net(shared, torch::nn::ReLU(), shared, torch::nn::BatchNorm1d(3));
    const auto synchronized = convert_sync_batchnorm(*net, group);
    if (synchronized.size() != 2) throw Error(str(synchronized.size(), " normalisations"));
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(SyncBatchNorm, ARefusedModuleIsLeftAsItWas) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    torch::nn::BatchNorm1d norm(3);
    const torch::nn::BatchNorm1d unknown(
        torch::nn::BatchNorm1dOptions(3).affine(false).track_running_stats(false));
    torch::nn::Sequential net(norm, unknown);
    const Tensor x = random({4, 3}, static_cast<std::uint64_t>(group.rank()), torch::kFloat32);
    const Tensor alone = norm->forward(x).detach();
    EXPECT_THROW(static_cast<void>(convert_sync_batchnorm(*net, group)), ConfigError);
    if (!torch::equal(norm->forward(x), alone)) throw Error("synchronised by a refused call");
    const auto synchronized = convert_sync_batchnorm(*norm, group);
    if (torch::allclose(norm->forward(x), alone)) throw Error("not synchronised afterwards");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(SyncBatchNorm, HandlesAreIndependent) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    torch::nn::BatchNorm1d one(3), two(3);
    const Tensor x = random({4, 3}, static_cast<std::uint64_t>(group.rank()), torch::kFloat32);
    const Tensor alone = one->forward(x);
    const auto stays = convert_sync_batchnorm(*one, group);
    {
      const auto goes = convert_sync_batchnorm(*two, group);
    }
    if (torch::allclose(one->forward(x), alone)) throw Error("switched off with another handle");
    if (!torch::allclose(two->forward(x), alone)) throw Error("still synchronised");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(SyncBatchNorm, LeavesOthersAndEvaluationAlone) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    torch::nn::BatchNorm1d other(3), own(3);
    const Tensor x = random({4, 3}, static_cast<std::uint64_t>(group.rank()), torch::kFloat32);
    const Tensor alone = other->forward(x);
    {
      const auto synchronized = convert_sync_batchnorm(*own, group);
      if (torch::allclose(own->forward(x), alone)) throw Error("not synchronised");
      if (group.rank() == 0) {  // not collective: rank 1 does nothing
        if (!torch::equal(other->forward(x), alone)) throw Error("another one changed");
        own->eval();
        own->forward(x);
        own->train();
      }
    }
    if (!torch::allclose(own->forward(x), alone)) throw Error("still synchronised");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(SyncBatchNorm, NeedsOneValueOnEachRankOnly) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    const Tensor none;
    const Tensor x = torch::full({1, 3}, group.rank() == 0 ? -5.0 : 7.0, torch::kFloat64);
    const Tensor y = sync_batch_norm(x, none, none, none, none, 0.1, 0, group);
    if (!torch::allclose(y, torch::full_like(y, group.rank() == 0 ? -1 : 1))) throw Error("wrong");
  });
  EXPECT_EQ(errors, no_errors(2));
}

// A normalisation without running statistics is known by its weight.
TEST(SyncBatchNorm, TakesANormWithoutRunningStatistics) {
  const auto make = [] {
    return torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(3).track_running_stats(false));
  };
  const Tensor whole = random({7, 3}, 4, torch::kFloat32);
  const Tensor expected = make()->forward(whole).detach();
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::BatchNorm1d norm = make();
    const auto synchronized = convert_sync_batchnorm(*norm, group);
    const std::int64_t first = group.rank() == 0 ? 0 : 5, rows = group.rank() == 0 ? 5 : 2;
    expect_near(norm->forward(whole.narrow(0, first, rows)), expected.narrow(0, first, rows), 2e-6,
                "the output");
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(SyncBatchNorm, TakesAWeightWithoutABiasAndABiasWithoutAWeight) {
  for (const bool has_weight : {false, true}) {
    const auto make = [] {
      return torch::tensor({0.5, 1.0, 3.0}, torch::kFloat64).requires_grad_();
    };
    const Tensor whole = random({7, 3}, 4, torch::kFloat64).requires_grad_();
    const Tensor dy = random({7, 3}, 5, torch::kFloat64);
    const Tensor own = make();
    const Tensor centered = whole - whole.mean(0);
    const Tensor y = centered / (centered.square().mean(0) + 0.25).sqrt();
    const Tensor expected = has_weight ? y * own : y + own;
    expected.backward(dy);
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      const Tensor none, parameter = make();
      const std::int64_t first = group.rank() == 0 ? 0 : 5, rows = group.rank() == 0 ? 5 : 2;
      const Tensor x = whole.detach().narrow(0, first, rows).clone().requires_grad_();
      const Tensor output =
          sync_batch_norm(x, has_weight ? parameter : none, has_weight ? none : parameter, none,
                          none, /*momentum=*/0.1, /*eps=*/0.25, group);
      output.backward(dy.narrow(0, first, rows));
      expect_near(output.detach(), expected.detach().narrow(0, first, rows), 1e-10, "the output");
      expect_near(x.grad(), whole.grad().narrow(0, first, rows), 1e-10, "dx");
      Tensor sum = parameter.grad().clone();
      group.all_reduce(sum);
      expect_near(sum, own.grad(), 1e-10, "the parameter's gradient");
    });
    EXPECT_EQ(errors, no_errors(2)) << (has_weight ? "a weight" : "a bias");
  }
}

TEST(SyncBatchNorm, NamesAnInnerNorm) {
  const torch::nn::BatchNorm1d unknown(
      torch::nn::BatchNorm1dOptions(3).affine(false).track_running_stats(false));
  torch::nn::Module net;
  net.register_module("inner", torch::nn::Sequential(torch::nn::ReLU(), unknown));
  const auto errors = run_group(1, "auto", [&](ProcessGroup group) {
    static_cast<void>(convert_sync_batchnorm(net, group));
  });
  EXPECT_THAT(errors[0], HasSubstr("'inner.1' has neither running statistics nor weights"));
}

TEST(SyncBatchNorm, RefusesWhatItCannotDo) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    torch::nn::Sequential net(
        torch::nn::BatchNorm2d(3),
        torch::nn::BatchNorm1d(
            torch::nn::BatchNorm1dOptions(3).affine(false).track_running_stats(false)));
    EXPECT_THROW(static_cast<void>(convert_sync_batchnorm(*net, group)), ConfigError);
    torch::nn::BatchNorm1d norm(2);
    const auto synchronized = convert_sync_batchnorm(*norm, group);
    EXPECT_THROW(static_cast<void>(convert_sync_batchnorm(*norm, group)), ConfigError);
    const Tensor none;
    sync_batch_norm(torch::ones({group.rank(), 2}), none, none, none, none, 0.1, 1e-5, group);
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("more than one value for each channel, the ranks together have 1")));
}

}  // namespace
}  // namespace lockstep
