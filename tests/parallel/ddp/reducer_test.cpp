// The reducer beyond the plain case: rebuilt buckets, several forwards and backwards, sparse
// gradients, dtypes, hooks, memory.
#include <lockstep/parallel/ddp/reducer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/parallel/layers.h>
#include <tests/parallel/mean_of_ranks.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::expect_gradients;
using testing_support::Gradients;
using testing_support::input_of;
using testing_support::Layers;
using testing_support::mean_of_ranks;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::without_bias;
using testing_support::zero_grad;

// --- Rebuilding

// The layers are registered as a, b, c and used in a different order on each rank. The caps hold
// three tensors of 64 and 16 bytes in the first bucket, and four in the second.
TEST(DdpRebuild, FollowsTheArrivalOnRankZero) {
  const auto order_of = [](int rank) { return rank == 0 ? "cab" : "bca"; };
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = run_group(2, backend, [&](ProcessGroup group) {
      Layers net(3);
      const DdpOptions options{.bucket_cap_mb = 160.0 / (1 << 20),
                               .first_bucket_cap_mb = 80.0 / (1 << 20)};
      DistributedDataParallel ddp(net, group, options);
      const auto& buckets = ddp.core().reducer()->grad_buckets();
      if (buckets.size() != 2 || !buckets[0].parameters[0].is_same(net->layers[2]->bias)) {
        throw Error("before the rebuild");
      }
      for (int step = 0; step < 3; ++step) {
        const Gradients expected = mean_of_ranks(2, [&](int rank) {
          Layers alone(3);
          alone->forward(input_of(rank, step), order_of(rank)).sum().backward();
          return alone;
        });
        zero_grad(*net);
        ddp.forward(input_of(group.rank(), step), order_of(group.rank())).sum().backward();
        expect_gradients(*net, expected);
        // Backward visits c, a, b as b, a, c. The gradient of a layer's bias may arrive before or
        // after that of its weight.
        if (buckets.size() != 2 || buckets[0].layout != 1 || buckets[1].index != 1 ||
            !buckets[1].is_last || buckets[0].parameters.size() != 2 ||
            buckets[1].parameters.size() != 4) {
          throw Error("after the rebuild");
        }
        const auto in_first = [&](const torch::Tensor& tensor) {
          return tensor.is_same(buckets[0].parameters[0]) ||
                 tensor.is_same(buckets[0].parameters[1]);
        };
        if (!in_first(net->layers[1]->weight) || !in_first(net->layers[1]->bias))
          throw Error("not b first");
      }
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(2)) << backend;
  }
}

TEST(DdpRebuild, LeavesBucketsThatWereRight) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Sequential net(without_bias(4), without_bias(4));
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 1e-5, .first_bucket_cap_mb = 1e-5});
    const auto memory = ddp.core().reducer()->grad_buckets()[0].buffer.data_ptr();
    ddp.forward(torch::ones({1, 4})).sum().backward();
    const auto& buckets = ddp.core().reducer()->grad_buckets();
    if (buckets[0].layout != 0 || buckets[0].buffer.data_ptr() != memory) throw Error("rebuilt");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Several forwards and backwards

TEST(DdpControlFlow, SeveralForwardsAndBackwards) {
  const auto run = [](auto&& forward, torch::nn::Module&, int rank) {
    const torch::Tensor first = forward(input_of(rank, 0), "ab");
    const torch::Tensor second = forward(input_of(rank, 1), "ba");
    (first.sum() + second.square().sum()).backward({}, /*retain_graph=*/true);
    second.sum().backward();  // a second backward through part of the graph
  };
  const Gradients expected = mean_of_ranks(3, [&](int rank) {
    Layers alone(2);
    run([&](auto... arguments) { return alone->forward(arguments...); }, *alone, rank);
    return alone;
  });
  const auto errors = run_group(3, "shm", [&](ProcessGroup group) {
    Layers net(2);
    DistributedDataParallel ddp(net, group);
    run([&](auto... arguments) { return ddp.forward(arguments...); }, *net, group.rank());
    expect_gradients(*net, expected);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(3));
}

// The buffer is part of the graph. Broadcasting it before the second forward would change the first
// forward's gradient on rank 1.
TEST(DdpControlFlow, BuffersStayWhileAGraphNeedsThem) {
  struct ScaledImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x) { return linear(x) * scale.unsqueeze(0); }
    torch::nn::Linear linear = register_module("linear", without_bias(2));
    torch::Tensor scale = register_buffer("scale", torch::ones({2}));
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    auto net = std::make_shared<ScaledImpl>();
    DistributedDataParallel ddp(net, group);
    const auto set_scale = [&] {
      const torch::NoGradGuard no_grad;
      net->scale.set_data(torch::full({2}, group.rank() + 2.0));
    };
    ddp.forward(torch::ones({1, 2})).sum().backward();
    zero_grad(*net);
    const auto first = ddp.forward(torch::ones({1, 2}));
    set_scale();  // rank 0: 2, rank 1: 3
    const auto second = ddp.forward(torch::ones({1, 2}));
    if (net->scale[0].item<float>() != static_cast<float>(group.rank() + 2))
      throw Error("sent between forwards");
    second.sum().backward();
    if (net->linear->weight.grad()[0][0].item<float>() != 2.5F) throw Error("gradient");
    ddp.forward(torch::ones({1, 2}));
    if (net->scale[0].item<float>() != 2) throw Error("not sent afterwards");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// A gradient through a buffer's old value is refused where the broadcast has changed the buffer.
TEST(DdpControlFlow, ABroadcastOfBuffersInvalidatesSavedOnes) {
  struct ScaledImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x) { return linear(x) * scale; }
    torch::nn::Linear linear = register_module("linear", without_bias(2));
    torch::Tensor scale = register_buffer("scale", torch::ones({2}));
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    auto net = std::make_shared<ScaledImpl>();
    DistributedDataParallel ddp(net, group);
    const auto kept = ddp.forward(torch::ones({1, 2})).sum();
    kept.backward({}, /*retain_graph=*/true);
    ddp.core().broadcast_buffers();
    const std::string message = testing_support::message_of<c10::Error>([&] {
      const auto guard = ddp.no_sync();
      kept.backward();
    });
    const bool refused = message.find("modified by an inplace operation") != std::string::npos;
    if (refused != (group.rank() == 1)) throw Error(message);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Sparse gradients

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse)
      : embedding(register_module(
            "embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(sparse)))),
        linear(register_module("linear", torch::nn::Linear(3, 2))) {
    const torch::NoGradGuard no_grad;
    auto generator = at::detail::createCPUGenerator(3);
    for (auto& parameter : parameters())
      parameter.copy_(torch::randn(parameter.sizes(), generator));
  }
  torch::Tensor forward(torch::Tensor words) { return linear(embedding(words).mean(0)); }
  torch::nn::Embedding embedding;
  torch::nn::Linear linear;
};
TORCH_MODULE(Words);

torch::Tensor words_of(int rank, int step) {
  static const std::vector<std::vector<std::int64_t>> words = {{1, 2, 2, 9}, {2}, {0, 9}};
  return torch::tensor(words[static_cast<std::size_t>((rank + step) % 3)]);
}

class DdpSparse : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, DdpSparse, testing::Values("shm", "gloo"));

TEST_P(DdpSparse, EqualsTheDenseMean) {
  const auto errors = run_group(3, GetParam(), [&](ProcessGroup group) {
    Words net(true);
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 3; ++step) {
      const Gradients expected = mean_of_ranks(3, [&](int rank) {
        Words alone(false);
        alone->forward(words_of(rank, step)).sum().backward();
        return alone;
      });
      zero_grad(*net);
      ddp.forward(words_of(group.rank(), step)).sum().backward();
      const torch::Tensor gradient = net->embedding->weight.grad();
      if (!gradient.is_sparse() || gradient._nnz() != 4)
        throw Error("not sparse");  // nonzero rows: words 0, 1, 2, 9
      expect_gradients(*net, expected);
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(3));
}

// A hook replaces the mean of dense gradients only.
TEST_P(DdpSparse, IsTheMeanBesideAHook) {
  const auto errors = run_group(2, GetParam(), [&](ProcessGroup group) {
    Words net(true);
    DistributedDataParallel ddp(net, group);
    ddp.register_comm_hook([group](GradBucket& bucket) mutable {
      bucket.buffer.mul_(10);
      return group.async_all_reduce(bucket.buffer, ReduceOp::kAverage);
    });
    for (int step = 0; step < 3; ++step) {
      Gradients expected = mean_of_ranks(2, [&](int rank) {
        Words alone(false);
        alone->forward(words_of(rank, step)).sum().backward();
        return alone;
      });
      for (auto& [name, gradient] : expected) {
        if (name != "embedding.weight") gradient = gradient * 10;
      }
      zero_grad(*net);
      ddp.forward(words_of(group.rank(), step)).sum().backward();
      expect_gradients(*net, expected);
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// A rank that does not use the embedding has no gradient from which to take the shape.
TEST_P(DdpSparse, ARankMayHaveNone) {
  for (const bool static_graph : {false, true}) {
    const auto errors = run_group(3, GetParam(), [&](ProcessGroup group) {
      Words net(true);
      DistributedDataParallel ddp(
          net, group, {.find_unused_parameters = !static_graph, .static_graph = static_graph});
      for (int step = 0; step < 3; ++step) {
        const auto uses = [](int rank) { return rank == 1; };
        const auto run = [&](Words& words, int rank, auto&& forward) {
          (uses(rank) ? forward(words_of(rank, step)) : words->linear(torch::ones({3})))
              .sum()
              .backward();
        };
        const Gradients expected = mean_of_ranks(3, [&](int rank) {
          Words alone(false);
          run(alone, rank, [&](auto words) { return alone->forward(words); });
          return alone;
        });
        zero_grad(*net);
        ddp.core().before_forward();
        run(net, group.rank(), [&](auto words) { return net->forward(words); });
        expect_gradients(*net, expected);
      }
      zero_grad(*net);
      if (group.rank() == 1) {
        ddp.forward(words_of(1, 0)).sum().backward();
      } else {
        ddp.core().step_without_backward();
      }
      const torch::Tensor gradient = net->embedding->weight.grad();
      if (!gradient.is_sparse() || gradient._nnz() == 0) throw Error("not that of rank 1");
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(3));
  }
}

TEST(DdpSparseErrors, NamesGradientsOfTheOtherKind) {
  struct TableImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor words, bool sparse) {
      return torch::embedding(table, words, -1, false, sparse);
    }
    torch::Tensor table = register_parameter("table", torch::ones({5, 2}));
  };
  for (const bool sparse : {true, false}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      auto net = std::make_shared<TableImpl>();
      DdpOptions options;
      if (!sparse) options.sparse_parameters = {"table"};
      DistributedDataParallel ddp(net, group, options);
      ddp.forward(torch::tensor({1}), sparse).sum().backward();
    });
    for (const auto& error : errors) {
      EXPECT_THAT(
          error,
          AllOf(HasSubstr("parameter 'table' has a "), HasSubstr("DdpOptions::sparse_parameters"),
                HasSubstr(sparse ? "sparse gradient; name it in" : "dense gradient; take it out"),
                HasSubstr(sparse ? ", or use a dense layer" : "out of DdpOptions::")));
    }
    const auto fine = run_group(2, "shm", [&](ProcessGroup group) {
      auto net = std::make_shared<TableImpl>();
      DdpOptions options;
      if (sparse) options.sparse_parameters = {"table"};
      DistributedDataParallel ddp(net, group, options);
      ddp.forward(torch::tensor({group.rank()}), sparse).sum().backward();
      if (net->table.grad().to_dense()[1][0].item<float>() != 0.5F) throw Error("mean");
      group.barrier();
    });
    EXPECT_EQ(fine, no_errors(2));
  }
  const auto unknown = run_group(2, "shm", [&](ProcessGroup group) {
    auto net = std::make_shared<TableImpl>();
    DistributedDataParallel ddp(net, group, {.sparse_parameters = {"tabel"}});
  });
  for (const auto& error : unknown)
    EXPECT_THAT(error, HasSubstr("DistributedDataParallel: sparse_parameters names 'tabel', which "
                                 "the module does not have"));
}

// --- Types

struct TypeCase {
  torch::Dtype dtype;
  double tolerance;
};

class DdpTypes : public testing::TestWithParam<TypeCase> {};
INSTANTIATE_TEST_SUITE_P(Types, DdpTypes,
                         testing::Values(TypeCase{torch::kFloat64, 1e-12},
                                         TypeCase{torch::kBFloat16, 0.02},
                                         TypeCase{torch::kFloat16, 0.005}),
                         [](const auto& info) {
                           return std::string(c10::toString(info.param.dtype));
                         });

// Each bucket has the dtype of its gradients, so that a module with two dtypes has two buckets.
TEST_P(DdpTypes, BucketsFollowTheParameters) {
  const auto [dtype, tolerance] = GetParam();
  const auto run = [](Layers& net, int rank, auto&& forward) {
    auto x = input_of(rank).to(net->layers[0]->weight.scalar_type());
    forward(x).to(torch::kFloat32).sum().backward();
  };
  const Gradients expected = mean_of_ranks(2, [&](int rank) {
    Layers alone(2, dtype);
    run(alone, rank, [&](auto x) { return alone->forward(x, "ab"); });
    return alone;
  });
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Layers net(2, dtype);
    const torch::Tensor other = net->register_parameter("other", torch::ones({3}));
    DistributedDataParallel ddp(net, group);
    run(net, group.rank(),
        [&](auto x) { return ddp.forward(x, "ab") + other.sum().to(dtype) * 0; });
    for (const auto& bucket : ddp.core().reducer()->grad_buckets()) {
      const auto type = bucket.parameters[0].scalar_type();
      if (bucket.buffer.scalar_type() != type) throw Error("type of the bucket");
      for (const auto& parameter : bucket.parameters) {
        if (parameter.scalar_type() != type || parameter.grad().scalar_type() != type)
          throw Error("mixed");
      }
    }
    Gradients wanted = expected;
    wanted["other"] = torch::zeros({3}, torch::kFloat64);
    expect_gradients(*net, wanted, tolerance);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Hooks

TEST(DdpHook, ReplacesTheMean) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    std::vector<std::size_t> seen;
    ddp.register_comm_hook([&](GradBucket& bucket) {
      seen.push_back(bucket.index);
      bucket.buffer.mul_(10);
      return group.async_all_reduce(bucket.buffer, ReduceOp::kSum);
    });
    ddp.forward(torch::full({1, 2}, group.rank() + 1.0)).sum().backward();
    if (net->weight.grad()[0][0].item<float>() != 30) throw Error("result");
    if (seen != std::vector<std::size_t>{0}) throw Error("buckets");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpHook, EndsTheStepWithItsError) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    ddp.register_comm_hook([&](GradBucket& bucket) -> WorkPtr {
      if (group.rank() == 1) throw DataError("the hook had enough");
      return group.async_all_reduce(bucket.buffer);
    });
    if (group.rank() == 1) {
      EXPECT_THROW(ddp.forward(torch::ones({1, 2})).sum().backward(), DataError);
      throw Error("the hook had enough");
    }
    ddp.forward(torch::ones({1, 2})).sum().backward();
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1"), HasSubstr("the hook had enough")));
}

TEST(DdpHook, MayThrowAnything) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    ddp.register_comm_hook([](GradBucket&) -> WorkPtr { throw 7; });
    ddp.forward(torch::ones({1, 2})).sum().backward();
  });
  for (const auto& error : errors)
    EXPECT_THAT(
        error,
        HasSubstr("a communication hook threw an exception not derived from std::exception"));
}

TEST(DdpHook, RunsInAGroupOfOne) {
  auto group = init_process_group({.environment = WorkerEnvironment{}});
  torch::nn::Linear net(2, 2);
  DistributedDataParallel ddp(net, group);
  EXPECT_THROW(ddp.register_comm_hook({}), ConfigError);
  ddp.register_comm_hook([&](GradBucket& bucket) {
    bucket.buffer.mul_(10);
    return group.async_all_reduce(bucket.buffer);
  });
  ddp.forward(torch::ones({1, 2})).sum().backward();
  EXPECT_EQ(net->weight.grad()[0][0].item<float>(), 10);
  EXPECT_EQ(ddp.statistics().ranks.size(), 1U);
}

TEST(DdpHook, IsRegisteredOnceAndBeforeTheFirstBackward) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    const CommHook hook = [&](GradBucket& bucket) { return group.async_all_reduce(bucket.buffer); };
    EXPECT_THROW(ddp.register_comm_hook({}), ConfigError);
    ddp.register_comm_hook(hook);
    EXPECT_THROW(ddp.register_comm_hook(hook), ConfigError);
    DistributedDataParallel late(torch::nn::Linear(2, 2), group);
    late.forward(torch::ones({1, 2})).sum().backward();
    EXPECT_THROW(late.register_comm_hook(hook), ConfigError);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpHook, IsRefusedWithAReason) {
  auto group = init_process_group({.environment = WorkerEnvironment{}});
  DistributedDataParallel ddp(torch::nn::Linear(2, 2), group);
  const CommHook hook = [&](GradBucket& bucket) { return group.async_all_reduce(bucket.buffer); };
  const auto refusal = [&](const CommHook& given) {
    return testing_support::message_of<ConfigError>([&] { ddp.register_comm_hook(given); });
  };
  EXPECT_THAT(refusal(nullptr), HasSubstr("the hook is empty"));
  EXPECT_EQ(refusal(hook), "nothing was thrown");
  EXPECT_THAT(refusal(hook), HasSubstr("there is a hook already"));
}

// --- Memory of the parameters

struct MemoryCase {
  const char* backend;
  int size;
  ParameterMemory memory;
};

class DdpParameterMemory : public testing::TestWithParam<MemoryCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, DdpParameterMemory,
                         testing::Values(MemoryCase{"shm", 2, ParameterMemory::kFlat},
                                         MemoryCase{"gloo", 2, ParameterMemory::kFlat},
                                         MemoryCase{"single", 1, ParameterMemory::kFlat},
                                         MemoryCase{"shm", 3, ParameterMemory::kShared}),
                         [](const auto& info) {
                           return lockstep::str(
                               info.param.backend, info.param.size,
                               info.param.memory == ParameterMemory::kFlat ? "Flat" : "Shared");
                         });

TEST_P(DdpParameterMemory, HoldsTheParametersInTheLayoutOfTheGradients) {
  const auto [backend, size, memory] = GetParam();
  const auto errors = run_group(size, size == 1 ? "shm" : backend, [&](ProcessGroup group) {
    Layers net(3);
    net->layers[1]->weight.set_data(net->layers[1]->weight.t().contiguous().t());  // other strides
    const Layers original(3);
    DistributedDataParallel ddp(
        net, group,
        {.bucket_cap_mb = 1e-4, .first_bucket_cap_mb = 1e-4, .parameter_memory = memory});
    ddp.register_comm_hook(
        [&](GradBucket& bucket) { return group.async_all_reduce(bucket.buffer); });
    const auto check = [&] {
      for (const auto& bucket : ddp.core().reducer()->grad_buckets()) {
        if (bucket.buffer.numel() != bucket.flat_parameters.numel() ||
            bucket.buffer.numel() % size != 0) {
          throw Error("sizes");
        }
        for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
          const auto offset = [](const torch::Tensor& tensor, const torch::Tensor& flat) {
            return static_cast<const float*>(tensor.const_data_ptr()) -
                   static_cast<const float*>(flat.const_data_ptr());
          };
          if (offset(bucket.parameters[i], bucket.flat_parameters) !=
                  offset(bucket.gradients[i], bucket.buffer) ||
              bucket.parameters[i].strides() != bucket.gradients[i].strides()) {
            throw Error("places");
          }
        }
      }
      const auto expected = original->named_parameters();
      for (const auto& item : net->named_parameters()) {
        if (!torch::equal(item.value(), expected[item.key()]))
          throw Error("values of " + item.key());
      }
    };
    check();
    ddp.forward(input_of(group.rank()), "cab").sum().backward();  // rebuilds the buckets
    if (ddp.core().reducer()->grad_buckets()[0].layout != 1) throw Error("not rebuilt");
    check();
    group.barrier();
    const torch::NoGradGuard no_grad;
    if (group.rank() == 0) net->layers[0]->bias.fill_(7);
    group.barrier();
    const bool follows = net->layers[0]->bias[0].item<float>() == 7;
    if (follows != (group.rank() == 0 || memory == ParameterMemory::kShared)) throw Error("shared");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(size));
}

// A wrapper that ends leaves each rank with its own copy of the parameters.
TEST(DdpSharedMemory, EndsWithTheWrapper) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Layers net(2);
    const Layers original(2);
    {
      DistributedDataParallel ddp(net, group, {.parameter_memory = ParameterMemory::kShared});
      group.barrier();
    }
    group.barrier();
    const torch::NoGradGuard no_grad;
    if (group.rank() == 0) net->layers[0]->bias.fill_(7);
    group.barrier();
    const bool is_seven = net->layers[0]->bias.eq(7).all().item<bool>();
    if (is_seven != (group.rank() == 0)) throw Error("still shared");
    if (!net->layers[1]->weight.equal(original->layers[1]->weight)) throw Error("values");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpParameterMemoryErrors, SaysWhatCannotBe) {
  const auto over_gloo = run_group(2, "gloo", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group, {.parameter_memory = ParameterMemory::kShared});
  });
  for (const auto& error : over_gloo)
    EXPECT_THAT(error, HasSubstr("parameter_memory kShared needs ranks that share memory, backend "
                                 "gloo does not; use kFlat"));
  const auto aliased = run_group(2, "shm", [&](ProcessGroup group) {
    auto a = without_bias(2), b = without_bias(2);
    b->weight.set_data(a->weight.detach());
    torch::nn::Sequential net(a, b);
    DistributedDataParallel ddp(net, group, {.parameter_memory = ParameterMemory::kFlat});
  });
  for (const auto& error : aliased)
    EXPECT_THAT(error, HasSubstr("'0.weight' and '1.weight' share memory"));
}

}  // namespace
}  // namespace lockstep
