// DistributedDataParallel with ranks as threads, compared with one process that trains on the whole
// batch.
#include <lockstep/parallel/distributed_data_parallel.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/ddp/reducer.h>
#include <lockstep/parallel/sync_batch_norm.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::no_errors;
using testing_support::run_group;

// Convolution, batch norm (buffers) and linear layers. Optionally, parameters are channels-last.
struct DdpNetImpl : torch::nn::Module {
  explicit DdpNetImpl(bool with_norm = false)
      : conv(register_module("conv", torch::nn::Conv2d(3, 8, 3))),
        fc1(register_module("fc1", torch::nn::Linear(8 * 6 * 6, 32))),
        fc2(register_module("fc2", torch::nn::Linear(32, 4))) {
    if (with_norm) norm = register_module("norm", torch::nn::BatchNorm2d(8));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = conv(x);
    if (!norm.is_empty()) x = norm(x);
    return fc2(torch::relu(fc1(torch::relu(x).flatten(1))));
  }
  torch::nn::Conv2d conv;
  torch::nn::Linear fc1, fc2;
  torch::nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(DdpNet);

// Initialisation draws from the global generator, which all rank threads share.
DdpNet make_net(std::uint64_t seed, bool with_norm = false) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  torch::manual_seed(seed);
  return DdpNet(with_norm);
}

struct Data {
  Data() {
    auto generator = at::detail::createCPUGenerator(7);
    x = torch::randn({12, 3, 8, 8}, generator);
    y = torch::randint(4, {12}, generator, torch::kInt64);
  }
  std::pair<torch::Tensor, torch::Tensor> share(int rank, int size) const {
    const std::int64_t n = x.size(0) / size;
    return {x.narrow(0, rank * n, n), y.narrow(0, rank * n, n)};
  }
  torch::Tensor x, y;
};

torch::Tensor loss_of(DdpNet& net, const torch::Tensor& x, const torch::Tensor& y) {
  return torch::nn::functional::cross_entropy(net->forward(x), y);
}

double relative_difference(const torch::Tensor& a, const torch::Tensor& b) {
  return ((a - b).norm() / b.norm().clamp_min(1e-20)).item<double>();
}

void expect_same_gradients(DdpNet& net, DdpNet& oracle, double tolerance) {
  const auto expected = oracle->named_parameters();
  for (const auto& item : net->named_parameters()) {
    const double difference = relative_difference(item.value().grad(), expected[item.key()].grad());
    if (!(difference <= tolerance))
      throw Error(lockstep::str(item.key(), " differs by ", difference));
  }
}

struct DdpCase {
  std::string backend;
  int size;
  bool channels_last;
  double bucket_cap_mb;
};

void PrintTo(const DdpCase& c, std::ostream* out) {
  *out << c.backend << ' ' << c.size << (c.channels_last ? " channels-last " : " ")
       << c.bucket_cap_mb;
}

class Ddp : public testing::TestWithParam<DdpCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Ddp,
                         testing::Values(DdpCase{"shm", 2, false, 25}, DdpCase{"shm", 2, true, 25},
                                         DdpCase{"shm", 3, false, 0.001},
                                         DdpCase{"shm", 4, true, 0.01},
                                         DdpCase{"gloo", 2, false, 0.01},
                                         DdpCase{"shm", 1, false, 25}));

// N ranks with a total batch of B compute the same gradients as one process with a batch of B.
TEST_P(Ddp, GradientsEqualThoseOfOneProcess) {
  const DdpCase& c = GetParam();
  const Data data;
  DdpNet oracle = make_net(1);
  loss_of(oracle, data.x, data.y).backward();
  const auto errors = run_group(c.size, c.backend, [&](ProcessGroup group) {
    // Each rank starts with other values; rank 0's win.
    DdpNet net = make_net(100 + static_cast<std::uint64_t>(group.rank()));
    if (group.rank() == 0) {
      const torch::NoGradGuard no_grad;
      const auto source = oracle->named_parameters();
      for (auto& item : net->named_parameters()) item.value().copy_(source[item.key()]);
    }
    if (c.channels_last) {
      const torch::NoGradGuard no_grad;
      net->conv->weight.set_data(net->conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
    }
    DistributedDataParallel ddp(net, group,
                                {.bucket_cap_mb = c.bucket_cap_mb, .first_bucket_cap_mb = 0.001});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto [x, y] = data.share(group.rank(), group.size());
    // The gradients are undefined in the first round, views of the bucket in the second, and
    // undefined again after zero_grad() in the third.
    for (int round = 0; round < 3; ++round) {
      if (round == 1) {
        for (auto& parameter : net->parameters()) parameter.mutable_grad().zero_();
      } else {
        optimizer.zero_grad();
      }
      torch::nn::functional::cross_entropy(ddp.forward(x), y).backward();
      expect_same_gradients(net, oracle, 1e-5);
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(c.size));
}

// Without synchronisation, each rank normalises over its own samples only, which changes the
// gradients.
TEST(DdpTraining, WithSyncBatchNormIsTrainingWithTheWholeBatch) {
  const Data data;
  DdpNet oracle = make_net(1, /*with_norm=*/true);
  torch::optim::SGD expected(oracle->parameters(), 0.05);
  for (int step = 0; step < 3; ++step) {
    expected.zero_grad();
    loss_of(oracle, data.x, data.y).backward();
    expected.step();
  }
  const auto errors = run_group(3, "shm", [&](ProcessGroup group) {
    DdpNet net = make_net(1, /*with_norm=*/true);
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 0.01, .sync_batch_norm = true});
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    const auto [x, y] = data.share(group.rank(), group.size());
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(ddp.forward(x), y).backward();
      optimizer.step();
    }
    const auto check = [](const auto& got, const auto& expected) {
      for (const auto& item : got) {
        const double difference = relative_difference(item.value().to(torch::kFloat64),
                                                      expected[item.key()].to(torch::kFloat64));
        if (!(difference <= 1e-4))
          throw Error(lockstep::str(item.key(), " differs by ", difference));
      }
    };
    check(net->named_parameters(), oracle->named_parameters());
    check(net->named_buffers(), oracle->named_buffers());
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST(DdpTraining, KeepsReplicasBitwiseEqualOverManySteps) {
  const Data data;
  const auto errors = run_group(3, "shm", [&](ProcessGroup group) {
    DdpNet net = make_net(static_cast<std::uint64_t>(group.rank()), /*with_norm=*/true);
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 0.01});
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    const auto [x, y] = data.share(group.rank(), group.size());
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(ddp.forward(x), y).backward();
      optimizer.step();
    }
    for (const auto& parameter : net->parameters()) {
      auto maximum = parameter.detach().clone(), other = parameter.detach().clone();
      group.broadcast(other, 1);
      if (!torch::equal(maximum, other)) throw Error("replicas differ");
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(3));
}

TEST(DdpTraining, BuffersFollowRankZero) {
  const Data data;
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DdpNet net = make_net(5, /*with_norm=*/true);
    {
      const torch::NoGradGuard no_grad;
      net->norm->running_mean.fill_(group.rank() + 1);
    }
    DistributedDataParallel ddp(net, group);
    if (net->norm->running_mean[0].item<float>() != 1) throw Error("construction");
    const auto [x, y] = data.share(group.rank(), group.size());
    net->train();
    ddp.forward(x).sum().backward();
    const auto after = net->norm->running_mean.clone();  // now the ranks differ
    net->eval();
    ddp.forward(x).sum().backward();
    auto of_rank0 = after.clone();
    group.broadcast(of_rank0, 0);
    if (!torch::equal(net->norm->running_mean, of_rank0)) throw Error("forward");
    if (group.rank() == 1 && torch::equal(after, of_rank0)) throw Error("the test shows nothing");
    if (net->norm->num_batches_tracked.item<std::int64_t>() != 1) throw Error("counter");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Buffers of several types and layouts, whose values depend on the rank.
struct UnusualBuffersImpl : torch::nn::Module {
  explicit UnusualBuffersImpl(int rank) {
    const torch::Tensor numbers = torch::arange(6, torch::kFloat32).view({2, 3}) + rank;
    register_buffer("transposed", numbers.t());
    register_buffer("half", numbers.to(torch::kHalf));
    register_buffer("mask", numbers.gt(3));
    register_buffer("nothing", torch::empty({0, 3}));
    register_buffer("again", register_buffer("number", torch::full({}, 0.5 + rank)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight = register_parameter("weight", torch::ones({2}));
};

TEST(DdpTraining, BuffersOfEveryKindFollowRankZero) {
  const UnusualBuffersImpl of_rank0(0);
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const auto net = std::make_shared<UnusualBuffersImpl>(group.rank());
    const auto require_those_of_rank0 = [&](const char* when) {
      for (const auto& item : of_rank0.named_buffers()) {
        const torch::Tensor own = net->named_buffers()[item.key()];
        if (!own.equal(item.value())) throw Error(str(item.key(), ' ', when));
      }
    };
    DistributedDataParallel ddp(net, group);
    require_those_of_rank0("after the construction");
    for (torch::Tensor& buffer : net->buffers()) {
      if (group.rank() == 1) buffer.zero_();
    }
    ddp.forward(torch::ones({2})).sum().backward();
    require_those_of_rank0("after a forward");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpTraining, NoSyncAccumulates) {
  const Data data;
  DdpNet oracle = make_net(1);
  loss_of(oracle, data.x, data.y).backward();
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DdpNet net = make_net(1);
    DistributedDataParallel ddp(net, group);
    const auto [x, y] = data.share(group.rank(), group.size());
    const auto halves_x = x.chunk(2), halves_y = y.chunk(2);
    {
      const auto guard = ddp.no_sync();
      (torch::nn::functional::cross_entropy(ddp.forward(halves_x[0]), halves_y[0]) / 2).backward();
    }
    (torch::nn::functional::cross_entropy(ddp.forward(halves_x[1]), halves_y[1]) / 2).backward();
    expect_same_gradients(net, oracle, 1e-5);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpTraining, GradientsLiveInSymmetricBuckets) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DdpNet net = make_net(1);
    DdpCore core(*net, group);
    core.before_forward();
    net->forward(torch::ones({1, 3, 8, 8})).sum().backward();
    const auto& buckets = core.reducer()->grad_buckets();
    for (const auto& parameter : net->parameters()) {
      const auto* data = static_cast<const std::byte*>(parameter.grad().data_ptr());
      bool inside = false;
      for (const auto& bucket : buckets) {
        const auto* begin = static_cast<const std::byte*>(bucket.buffer.data_ptr());
        inside = inside || (data >= begin && data < begin + bucket.buffer.nbytes());
      }
      if (!inside) throw Error("a gradient outside of the buckets");
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpTraining, TiedWeightsAndSharedModulesCountOnce) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      first = register_module("first", torch::nn::Linear(4, 4));
      second = register_module("second", first.ptr());
      norm = register_module("norm", torch::nn::BatchNorm1d(4));
      again = register_module("again", norm.ptr());
    }
    torch::Tensor forward(torch::Tensor x) { return second(again(norm(first(x)))); }
    torch::nn::Linear first{nullptr};
    torch::nn::Linear second{nullptr};
    torch::nn::BatchNorm1d norm{nullptr};
    torch::nn::BatchNorm1d again{nullptr};
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    auto net = std::make_shared<TiedImpl>();
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 2; ++step) {
      ddp.forward(torch::full({3, 4}, group.rank() + 1.0)).square().sum().backward();
      auto other = net->first->weight.grad().clone();
      group.broadcast(other, 0);
      if (!torch::equal(other, net->first->weight.grad())) throw Error("gradients differ");
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpTraining, ASecondWrapperReplacesTheFirst) {
  const Data data;
  DdpNet oracle = make_net(1);
  loss_of(oracle, data.x, data.y).backward();
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DdpNet net = make_net(1);
    auto ddp = std::make_unique<DistributedDataParallel<DdpNet>>(net, group);
    // As in any assignment, the new wrapper is constructed before the old one is destroyed.
    ddp = std::make_unique<DistributedDataParallel<DdpNet>>(net, group);
    const auto [x, y] = data.share(group.rank(), group.size());
    torch::nn::functional::cross_entropy(ddp->forward(x), y).backward();
    expect_same_gradients(net, oracle, 1e-5);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpErrors, RefusesAHookOfSomebodyElse) {
  struct Foreign : torch::autograd::PostAccumulateGradHook {
    void operator()(const torch::autograd::Variable&) override {}
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DdpNet net = make_net(1);
    torch::autograd::impl::set_post_acc_grad_hooks(net->fc1->bias, std::make_unique<Foreign>());
    DistributedDataParallel ddp(net, group);
  });
  for (const auto& error : errors)
    EXPECT_THAT(error, HasSubstr("'fc1.bias' already has a post-accumulate"));
}

TEST(DdpErrors, NamesParametersWithoutGradient) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DdpNet net = make_net(1);
    DistributedDataParallel ddp(net, group);
    auto y = ddp.forward(torch::ones({1, 3, 8, 8}));
    // Rank 1's loss uses only one of the parameters.
    auto loss = group.rank() == 0 ? y.sum() : net->fc2->bias.sum();
    loss.backward();
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 1: 5 of 6 parameters received no gradient"),
                               HasSubstr("conv.weight"), HasSubstr("fc2.weight")));
  EXPECT_THAT(errors[1], testing::Not(HasSubstr("fc2.bias,")));
  EXPECT_THAT(errors[0], HasSubstr("rank 1 ended the group"));
  EXPECT_THAT(errors[0], HasSubstr("received no gradient"));
}

TEST(DdpErrors, NamesTheFirstTensorThatDiffers) {
  struct Wrong {
    const char* what;
    std::function<void(DdpNet&)> change;  // applied to rank 1's net
    std::vector<const char*> expected;
  };
  const std::vector<Wrong> cases = {
      {"shape",
       [](DdpNet& net) { net->replace_module("fc1", torch::nn::Linear(288, 31)); },
       {"parameter 'fc1.weight' Float [32, 288]", "parameter 'fc1.weight' Float [31, 288]"}},
      {"dtype",
       [](DdpNet& net) { net->fc2->to(torch::kFloat64); },
       {"parameter 'fc2.weight' Float [4, 32]", "parameter 'fc2.weight' Double [4, 32]"}},
      {"name",
       [](DdpNet& net) { net->register_parameter("extra", torch::ones({2})); },
       {"rank 0 has", "parameter 'extra' Float [2]"}},
      {"strides",
       [](DdpNet& net) {
         net->conv->weight.set_data(
             net->conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
       },
       {"'conv.weight' Float [8, 3, 3, 3] with strides [27, 1, 9, 3]"}},
      {"frozen", [](DdpNet& net) { net->fc2->bias.set_requires_grad(false); }, {"(frozen)"}},
  };
  for (const Wrong& wrong : cases) {
    SCOPED_TRACE(wrong.what);
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      DdpNet net = make_net(1);
      if (group.rank() == 1) wrong.change(net);
      DistributedDataParallel ddp(net, group);
    });
    for (const auto& error : errors) {
      EXPECT_THAT(error, HasSubstr("ranks have different models"));
      for (const char* part : wrong.expected) EXPECT_THAT(error, HasSubstr(part));
    }
  }
}

TEST(DdpErrors, RefusesOptionsThatCannotBe) {
  auto group = init_process_group({.environment = WorkerEnvironment{}});
  DdpNet net = make_net(1);
  EXPECT_THROW(DdpCore(*net, group, {.bucket_cap_mb = 0}), ConfigError);
  for (auto& parameter : net->parameters()) parameter.set_requires_grad(false);
  EXPECT_THROW(DdpCore(*net, group), ConfigError);
}

TEST(DdpErrors, NamesBucketCapsThatCannotBe) {
  auto group = init_process_group({.environment = WorkerEnvironment{}});
  DdpNet net = make_net(1);
  const auto refusal = [&](const DdpOptions& options) {
    return testing_support::message_of<ConfigError>(
        [&] { const DdpCore core(*net, group, options); });
  };
  EXPECT_THAT(refusal({.bucket_cap_mb = -1}), HasSubstr("bucket_cap_mb must be"));
  EXPECT_THAT(refusal({.bucket_cap_mb = 1.1e9}), HasSubstr(": bucket_cap_mb must be from 0 to"));
  EXPECT_THAT(refusal({.first_bucket_cap_mb = 0}), HasSubstr(": first_bucket_cap_mb must be"));
  EXPECT_THAT(refusal({.first_bucket_cap_mb = std::nan("")}),
              HasSubstr(": first_bucket_cap_mb must be"));
  EXPECT_THAT(refusal({.first_bucket_cap_mb = 1.1e9}),
              HasSubstr(": first_bucket_cap_mb must be from 0 to"));
  EXPECT_EQ(refusal({.bucket_cap_mb = 1e9, .first_bucket_cap_mb = 1e9}), "nothing was thrown");
}

// A batch normalisation that the wrapper has not synchronised can be synchronised by others.
TEST(DdpSyncBatchNorm, IsForSeveralRanksAndOnlyIfAsked) {
  for (const int ranks : {1, 2}) {
    const auto errors = run_group(ranks, ranks == 1 ? "auto" : "shm", [&](ProcessGroup group) {
      for (const bool asked : {true, false}) {
        torch::nn::BatchNorm1d net(3);
        const DistributedDataParallel ddp(net, group, {.sync_batch_norm = asked});
        const auto message = testing_support::message_of<ConfigError>(
            [&] { static_cast<void>(convert_sync_batchnorm(*net, group)); });
        EXPECT_THAT(message, HasSubstr(ranks == 2 && asked ? "is synchronised already"
                                                           : "nothing was thrown"))
            << ranks << " ranks";
        group.barrier();
      }
    });
    EXPECT_EQ(errors, no_errors(ranks));
  }
}

TEST(DdpErrors, NamesEachOptionThatDiffers) {
  struct Case {
    const char* expected;
    std::function<void(DdpOptions&)> change;  // applied on rank 1
  };
  const Case cases[] = {
      {"option bucket_cap_mb 25, rank 1 has option bucket_cap_mb 5",
       [](DdpOptions& options) { options.bucket_cap_mb = 5; }},
      {"option first_bucket_cap_mb 1, rank 1 has option first_bucket_cap_mb 2",
       [](DdpOptions& options) { options.first_bucket_cap_mb = 2; }},
      {"option broadcast_buffers true, rank 1 has option broadcast_buffers false",
       [](DdpOptions& options) { options.broadcast_buffers = false; }},
      {"option sync_batch_norm false, rank 1 has option sync_batch_norm true",
       [](DdpOptions& options) { options.sync_batch_norm = true; }},
      {"option static_graph false, rank 1 has option static_graph true",
       [](DdpOptions& options) { options.static_graph = true; }},
      {"option parameter_memory kAsIs, rank 1 has option parameter_memory kFlat",
       [](DdpOptions& options) { options.parameter_memory = ParameterMemory::kFlat; }},
      {"option parameter_memory kAsIs, rank 1 has option parameter_memory kShared",
       [](DdpOptions& options) { options.parameter_memory = ParameterMemory::kShared; }}};
  for (const Case& c : cases) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      DdpNet net = make_net(1);
      DdpOptions options;
      if (group.rank() == 1) c.change(options);
      DistributedDataParallel ddp(net, group, options);
    });
    for (const auto& error : errors) EXPECT_THAT(error, HasSubstr(c.expected));
  }
}

TEST(DdpErrors, OfElementsThatShareMemory) {
  const torch::Tensor repeated = torch::ones({1}).expand({3});
  const auto refusals = [&](const char* kind) {
    return run_group(2, "shm", [&](ProcessGroup group) {
      DdpNet net = make_net(1);
      if (group.rank() == 1 && std::string_view(kind) == "parameter") {
        net->register_parameter("scale", repeated, /*requires_grad=*/false);
      } else if (group.rank() == 1) {
        net->register_buffer("scale", repeated);
      }
      DistributedDataParallel ddp(net, group);
    });
  };
  for (const char* kind : {"parameter", "buffer"}) {
    for (const auto& error : refusals(kind)) {
      EXPECT_THAT(
          error, HasSubstr(lockstep::str("DistributedDataParallel: ", kind,
                                         " 'scale' has several elements at one address (shape [3], "
                                         "strides [0]); register a clone() of it")));
    }
  }
}

// Parameters in one storage can be moved apart if they are dense and do not overlap.
TEST(DdpParameterMemoryErrors, OfNeighboursGapsAndOverlaps) {
  const auto refusal = [](const torch::Tensor& a, const torch::Tensor& b) {
    torch::nn::Module module;
    module.register_parameter("b", b.detach());
    module.register_parameter("a", a.detach());
    const auto errors = run_group(1, "auto", [&](ProcessGroup group) {
      const DdpCore core(module, group, {.parameter_memory = ParameterMemory::kFlat});
      LOCKSTEP_CHECK(module.parameters()[0].equal(b) && module.parameters()[1].equal(a), "values");
    });
    return errors[0];
  };
  const torch::Tensor memory = torch::arange(12, torch::kFloat32);
  EXPECT_EQ(refusal(memory.slice(0, 0, 4), memory.slice(0, 4, 8)), "");
  EXPECT_EQ(refusal(memory.view({3, 4}).t(), torch::zeros({3})), "");
  EXPECT_THAT(refusal(memory.slice(0, 0, 4), memory.slice(0, 3, 8)),
              HasSubstr("parameters 'a' and 'b' share memory"));
  EXPECT_THAT(refusal(torch::zeros({3}), memory.view({4, 3}).narrow(1, 0, 2)),
              HasSubstr("parameter 'b' with strides [3, 1] has gaps"));
}

// The wrapper is ready for the next forward.
TEST(DdpErrors, AnExceptionOfTheModuleKeepsItsType) {
  struct Pairs : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) {
      if (x.size(0) != 2) throw std::invalid_argument("two samples");
      return fc(x);
    }
    torch::nn::Linear fc = register_module("fc", torch::nn::Linear(4, 1));
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    const auto net = std::make_shared<Pairs>();
    DistributedDataParallel ddp(net, group);
    EXPECT_EQ(testing_support::message_of<std::invalid_argument>(
                  [&] { ddp.forward(torch::ones({3, 4})); }),
              "two samples");
    ddp.forward(torch::ones({2, 4})).sum().backward();
    EXPECT_TRUE(net->fc->weight.grad().defined());
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpErrors, ABackwardThatThrewIsNotForgotten) {
  struct Thrower : torch::autograd::Function<Thrower> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x) {
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list) {
      throw std::runtime_error("out of memory");
    }
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    DdpNet net = make_net(1);
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 0.001, .first_bucket_cap_mb = 0.001});
    ddp.core().before_forward();
    auto hidden = net->fc1(Thrower::apply(net->conv(torch::ones({1, 3, 8, 8})).flatten(1)));
    auto loss = net->fc2(hidden).sum();
    EXPECT_THROW(loss.backward(), std::runtime_error);
    EXPECT_THROW(ddp.forward(torch::ones({1, 3, 8, 8})), CommError);
    group.monitored_barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep
