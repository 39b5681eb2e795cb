// The error message for each misuse of the wrapper.
#include <lockstep/parallel/ddp/reducer.h>

#include <memory>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <lockstep/parallel/zero_redundancy_optimizer.h>
#include <tests/parallel/layers.h>
#include <tests/parallel/mean_of_ranks.h>
#include <tests/support/captured_log.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::zero_grad;

TEST(DdpErrors, NamesAForwardOutsideOfTheWrapper) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    net->forward(torch::ones({1, 2})).sum().backward();
  });
  for (const auto& error : errors)
    EXPECT_THAT(error, HasSubstr("call the wrapper's forward(), not the module's"));
}

TEST(DdpErrors, NamesAWrapperThatAnotherReplaced) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel first(net, group);
    {
      const DistributedDataParallel second(net, group);
    }
    DistributedDataParallel third(net, group);
    third.forward(torch::ones({1, 2})).sum().backward();
    first.forward(torch::ones({1, 2}));
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, HasSubstr("another DistributedDataParallel took over parameter 'weight'"));
  }
}

// A wrapper removes its own hooks, but not those of a wrapper that has replaced it.
TEST(DdpHooks, EndWithTheirWrapper) {
  const auto errors = run_group(1, "auto", [&](ProcessGroup group) {
    using Wrapper = DistributedDataParallel<torch::nn::Linear>;
    torch::nn::Linear net(2, 2);
    const auto hook_of = [](const torch::Tensor& parameter) {
      return torch::autograd::impl::post_acc_grad_hooks(parameter).get();
    };
    auto first = std::make_unique<Wrapper>(net, group);
    const auto* const first_hook = hook_of(net->weight);
    EXPECT_NE(first_hook, nullptr);
    EXPECT_NE(hook_of(net->bias), nullptr);
    auto second = std::make_unique<Wrapper>(net, group);
    const auto* const second_hook = hook_of(net->weight);
    EXPECT_NE(second_hook, nullptr);
    first.reset();
    EXPECT_EQ(hook_of(net->weight), second_hook);
    EXPECT_NE(hook_of(net->bias), nullptr);
    second->forward(torch::ones({3, 2})).sum().backward();
    EXPECT_TRUE(net->bias.grad().equal(torch::full({2}, 3.0F)));
    second.reset();
    EXPECT_EQ(hook_of(net->weight), nullptr);
    EXPECT_EQ(hook_of(net->bias), nullptr);
    net->forward(torch::ones({2, 2})).sum().backward();
    EXPECT_TRUE(net->bias.grad().equal(torch::full({2}, 5.0F))) << "gradients stay valid";
  });
  EXPECT_EQ(errors, no_errors(1));
}

// When one rank finds an error locally, the other ranks must fail too instead of waiting.
TEST(DdpErrors, WhatOneRankFindsAllHear) {
  struct Foreign : torch::autograd::PostAccumulateGradHook {
    void operator()(const torch::autograd::Variable&) override {}
  };
  struct Case {
    const char* expected;
    std::function<void(torch::nn::Linear&, DdpOptions&)> change;  // applied on rank 1
  };
  const std::vector<Case> cases = {
      {"rank 1: DistributedDataParallel: bucket_cap_mb must be",
       [](auto&, DdpOptions& options) { options.bucket_cap_mb = 0; }},
      {"rank 1: DistributedDataParallel: first_bucket_cap_mb must be",
       [](auto&, DdpOptions& options) { options.first_bucket_cap_mb = 1e30; }},
      {"rank 1: DistributedDataParallel: sparse_parameters names 'x'",
       [](auto&, DdpOptions& options) { options.sparse_parameters = {"x"}; }},
      {"option sparse_parameters (with those found) [weight]",
       [](auto&, DdpOptions& options) { options.sparse_parameters = {"weight"}; }},
      {"rank 1: DistributedDataParallel: the module has no parameter",
       [](torch::nn::Linear& net, DdpOptions&) {
         for (const auto& parameter : net->parameters()) parameter.set_requires_grad(false);
       }},
      {"rank 1: parameter 'bias' already has a post-accumulate-grad hook",
       [](torch::nn::Linear& net, DdpOptions&) {
         torch::autograd::impl::set_post_acc_grad_hooks(net->bias, std::make_unique<Foreign>());
       }},
      {"rank 1: DistributedDataParallel: parameter 'bias' is Float [2] on cpu and its gradient is "
       "Double [2] on cpu; reset the gradient before wrapping",
       [](torch::nn::Linear& net, DdpOptions&) {
         net->bias.mutable_grad() = torch::zeros({2}, torch::kFloat64);
       }},
  };
  for (const Case& c : cases) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      torch::nn::Linear net(2, 2);
      DdpOptions options;
      if (group.rank() == 1) c.change(net, options);
      DistributedDataParallel ddp(net, group, options);
    });
    for (const auto& error : errors) EXPECT_THAT(error, HasSubstr(c.expected));
  }
}

TEST(DdpErrors, AStepWithoutABackwardAccumulatesNothing) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    {
      const auto guard = ddp.no_sync();
      group.rank() == 0 ? ddp.core().step_without_backward()
                        : ddp.forward(torch::ones({1, 2})).sum().backward();
    }
    ddp.forward(torch::ones({1, 2})).sum().backward();
    if (net->bias.grad()[0].item<float>() != 1.5F) throw Error("gradient");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The change is found on both ranks at once, without waiting for a deadline.
TEST(DdpErrors, NamesAModuleThatChangedAfterwards) {
  for (const bool with_norm : {false, true}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      torch::nn::Sequential net(torch::nn::Linear(2, 2));
      if (with_norm) net->push_back(torch::nn::BatchNorm1d(2));
      DistributedDataParallel ddp(net, group);
      ddp.forward(torch::ones({3, 2})).sum().backward();
      if (group.rank() == 1)
        with_norm ? net->ptr(1)->to(torch::kFloat64) : net->to(torch::kFloat64);
      ddp.forward(torch::ones({3, 2})).sum().backward();
    });
    EXPECT_THAT(errors[1],
                AllOf(HasSubstr(with_norm ? "rank 1: parameter '1." : "rank 1: parameter '0."),
                      HasSubstr("was Float [2"), HasSubstr("is now Double"),
                      HasSubstr("construct it after changing the module")));
    EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1 ended the group"),
                                 HasSubstr("construct it after changing")));
  }
  const auto larger = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    ddp.forward(torch::ones({3, 2})).sum().backward();
    if (group.rank() == 1) net->weight.set_data(torch::ones({5, 2}));
    ddp.forward(torch::ones({3, 2})).sum().backward();
  });
  EXPECT_THAT(larger[1], AllOf(HasSubstr("rank 1: parameter 'weight' was Float [2, 2]"),
                               HasSubstr("the parameter is now Float [5, 2]")));
  EXPECT_THAT(larger[0], HasSubstr("rank 1 ended the group"));
  const std::pair<torch::Tensor, const char*> changes[] = {
      {torch::ones({3}), "is now Float [3]"},
      {torch::ones({2}, torch::kFloat64), "is now Double [2]"}};
  for (const auto& [changed, expected] : changes) {
    const auto buffers = run_group(2, "shm", [&, &changed = changed](ProcessGroup group) {
      torch::nn::BatchNorm1d net(2);
      DistributedDataParallel ddp(net, group);
      const torch::NoGradGuard no_grad;  // buffers stay while a graph may need them
      ddp.forward(torch::ones({3, 2}));
      if (group.rank() == 1) net->running_var.set_data(changed);
      ddp.forward(torch::ones({3, 2}));
      group.barrier();  // a rank that only sends its buffers does not wait for the receivers
    });
    EXPECT_THAT(buffers[1], AllOf(HasSubstr("rank 1: buffer 'running_var' was Float [2]"),
                                  HasSubstr(expected)));
    EXPECT_THAT(buffers[0], HasSubstr("buffer 'running_var'"));
  }
}

// Changes between a forward and the end of its backward. The first backward would lay out its
// buckets anew, differently on each rank.
TEST(DdpErrors, NamesAModuleThatChangedBeforeItsBackward) {
  for (const bool is_first : {true, false}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
      DistributedDataParallel ddp(net, group);
      if (!is_first) ddp.forward(torch::ones({3, 2})).sum().backward();
      const auto loss = ddp.forward(torch::ones({3, 2})).sum();
      if (group.rank() == 1) net->ptr(0)->to(torch::kFloat64);
      loss.backward();
      ddp.forward(torch::ones({3, 2}));
      group.barrier();
    });
    EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 1: parameter '0."), HasSubstr("was Float [2"),
                                 HasSubstr("is now Double")))
        << is_first;
    EXPECT_THAT(errors[0], HasSubstr("rank 1 ended the group")) << is_first;
  }
}

// A gradient that the caller put there, to which backward() adds.
TEST(DdpErrors, NamesAGradientOfAnotherKind) {
  for (const bool with_hook : {false, true}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      torch::nn::Linear net(2, 2);
      DistributedDataParallel ddp(net, group);
      if (with_hook) ddp.register_comm_hook(all_reduce_hook(group));
      if (group.rank() == 1) net->bias.mutable_grad() = torch::zeros({2}, torch::kFloat64);
      ddp.forward(torch::ones({3, 2})).sum().backward();
    });
    EXPECT_THAT(
        errors[1],
        HasSubstr("rank 1: parameter 'bias' was Float [2] on cpu when DistributedDataParallel was "
                  "constructed and its gradient is now Double [2] on cpu;"));
    EXPECT_THAT(errors[0], HasSubstr("rank 1 ended the group"));
  }
}

// --- Gradients with a graph

// Ways to reach the first backward with create_graph. Each wrapper runs `backward` on its output.
struct GraphCase {
  const char* name;
  DdpOptions options;
  bool under_no_sync = false;
  bool after_another = false;  // the gradients are views of buckets already
  bool sharded = false;
  bool with_hook = false;
};

const std::vector<GraphCase> kGraphCases = {
    {.name = "the first backward", .options = {}},
    {.name = "a later backward", .options = {}, .after_another = true},
    {.name = "no_sync", .options = {}, .under_no_sync = true},
    {.name = "find_unused_parameters", .options = {.find_unused_parameters = true}},
    {.name = "static_graph", .options = {.static_graph = true}},
    {.name = "a hook", .options = {}, .with_hook = true},
    {.name = "a sharded optimizer",
     .options = {.parameter_memory = ParameterMemory::kFlat},
     .sharded = true},
};

TEST(DdpGraphs, AGradientWithAGraphIsRefusedByName) {
  for (const GraphCase& each : kGraphCases) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      torch::nn::Sequential net(torch::nn::Linear(2, 2));
      DistributedDataParallel ddp(net, group, each.options);
      std::optional<ZeroRedundancyOptimizer> optimizer;
      if (each.sharded) optimizer.emplace(ddp.core(), *net, SgdOptions{.lr = 0.1});
      if (each.with_hook) ddp.register_comm_hook(all_reduce_hook(group));
      const auto loss = [&] { return ddp.forward(torch::ones({1, 2})).square().sum(); };
      if (each.after_another) loss().backward();
      std::optional<DdpCore::NoSync> guard;
      if (each.under_no_sync) guard.emplace(ddp.core());
      // Without a graph of its own a gradient is accepted, whatever the backward records.
      ddp.forward(torch::ones({1, 2})).sum().backward({}, true, /*create_graph=*/true);
      if (each.sharded) optimizer->zero_grad();
      loss().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    });
    EXPECT_THAT(errors,
                Contains(AllOf(MatchesRegex(".*the gradient of parameter '0\\.(weight|bias)' "
                                            "has a graph \\(create_graph\\).*"),
                               HasSubstr("torch::autograd::grad()"))))
        << each.name;
  }
}

// The way that the error names: the penalty on the norm of the gradient is part of one loss.
TEST(DdpGraphs, APenaltyOnGradientsIsTrainedThroughAutogradGrad) {
  const auto make = [] {
    torch::nn::Linear net(3, 2);
    const torch::NoGradGuard no_grad;
    net->weight.copy_(torch::arange(6).view({2, 3}) * 0.1 - 0.2);
    net->bias.copy_(torch::tensor({0.3F, -0.4F}));
    return net;
  };
  const auto total = [](auto& model, const torch::nn::Linear& net, int rank) {
    const auto x = torch::arange(12, torch::kFloat32).view({4, 3}) * 0.1 - rank;
    const auto loss = torch::tanh(model.forward(x)).square().mean();
    auto sum = loss;
    for (const auto& gradient :
         torch::autograd::grad({loss}, net->parameters(), {}, true, /*create_graph=*/true)) {
      sum = sum + gradient.square().sum();
    }
    return sum;
  };
  const auto expected = testing_support::mean_of_ranks(2, [&](int rank) {
    auto net = make();
    total(*net, net, rank).backward();
    return net.ptr();
  });
  for (const char* backend : {"shm", "gloo"}) {
    const auto errors = run_group(2, backend, [&](ProcessGroup group) {
      auto net = make();
      DistributedDataParallel ddp(net, group);
      total(ddp, net, group.rank()).backward();
      testing_support::expect_gradients(*net, expected, 1e-5);
    });
    EXPECT_EQ(errors, no_errors(2)) << backend;
  }
}

// A net to which a parameter can be added later.
struct GrowingImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = body(head(x));
    return extra.defined() ? x * extra : x;
  }
  void add(const torch::Tensor& parameter, bool trains = true) {
    extra = body->register_parameter("extra", parameter, trains);
  }
  torch::nn::Linear head = register_module("head", torch::nn::Linear(2, 2));
  torch::nn::Linear body = register_module("body", torch::nn::Linear(2, 2));
  torch::Tensor extra;
};
TORCH_MODULE(Growing);

// Such a parameter would keep each rank's local gradient, and the replicas would diverge.
TEST(DdpErrors, NamesAParameterThatTrainsUnwrapped) {
  struct Case {
    const char* expected;
    int first_rank;  // this rank and all later ones apply the change
    std::function<void(Growing&)> change;
  };
  const std::vector<Case> cases = {
      {"parameter 'head.weight' requires a gradient and was frozen when", 0,
       [](Growing& net) { net->head->weight.requires_grad_(true); }},
      {"parameter 'head.weight' requires a gradient and was frozen when", 1,
       [](Growing& net) { net->head->weight.requires_grad_(true); }},
      {"parameter 'body.extra' requires a gradient and was not registered when", 0,
       [](Growing& net) { net->add(torch::ones({2})); }},
      {"parameter 'late.bias' requires a gradient and was not registered when", 0,
       [](Growing& net) {
         net->register_module("late", torch::nn::Linear(torch::nn::LinearOptions(2, 2)))
             ->weight.set_requires_grad(false);
       }},
      {"parameter 'body.weight' requires a gradient and was not registered when", 0,
       [](Growing& net) { net->replace_module("body", torch::nn::Linear(2, 2)); }},
  };
  for (const Case& c : cases) {
    for (const bool with_gradients : {true, false}) {
      const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
        Growing net;
        net->head->weight.set_requires_grad(false);
        DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
        ddp.forward(torch::ones({1, 2})).sum().backward();
        if (group.rank() >= c.first_rank) c.change(net);
        const torch::AutoGradMode grad(with_gradients);
        ddp.forward(torch::ones({1, 2}));
        group.barrier();
      });
      // Each rank either finds the error locally or is told by the other, whichever comes first.
      for (const auto& error : errors) {
        EXPECT_THAT(error, AllOf(HasSubstr(c.expected), HasSubstr("wrap the module again")));
      }
      if (c.first_rank == 1) {
        EXPECT_THAT(errors[0], HasSubstr("rank 1 ended the group"));
      }
    }
  }
}

// The critic of a GAN is frozen while the generator trains. Frozen parameters may be added and
// removed.
TEST(DdpFreezing, WrappedParametersMayRestAndFrozenOnesCome) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Growing net;
    DistributedDataParallel ddp(net, group);
    const torch::Tensor x = torch::ones({1, 2}, torch::requires_grad());
    for (int round = 0; round < 3; ++round) {
      for (auto& parameter : net->parameters()) parameter.set_requires_grad(false);
      if (round == 1) net->add(torch::full({2}, 2.0), /*trains=*/false);
      ddp.forward(x).sum().backward();
      for (auto& item : net->named_parameters())
        item.value().set_requires_grad(item.key() != "body.extra");
      net->zero_grad();
      ddp.forward(torch::full({1, 2}, static_cast<double>(group.rank()))).sum().backward();
      if (!torch::allclose(net->body->bias.grad(), torch::full({2}, round == 0 ? 1.0 : 2.0)))
        throw Error("gradient");
    }
    if (!x.grad().any().item<bool>()) throw Error("nothing reached the generator");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpFreezing, WrappingAgainTakesUnfrozenAndNewParameters) {
  const auto change = [](Growing& net) {
    net->head->weight.set_requires_grad(true);
    net->add(torch::full({2}, 3.0));
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    for (const auto memory : {ParameterMemory::kAsIs, ParameterMemory::kFlat}) {
      Growing net;
      net->head->weight.set_requires_grad(false);
      std::optional<DistributedDataParallel<Growing>> ddp;
      ddp.emplace(net, group, DdpOptions{.parameter_memory = memory});
      ddp->forward(torch::ones({1, 2})).sum().backward();
      change(net);
      ddp.emplace(net, group, DdpOptions{.parameter_memory = memory});
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        ddp->forward(torch::full({1, 2}, static_cast<double>(group.rank()))).sum().backward();
        for (const auto& item : net->named_parameters()) {
          torch::Tensor others = item.value().grad().clone();
          group.broadcast(others, 0);
          if (!torch::equal(others, item.value().grad()))
            throw Error(item.key() + " has a gradient of its own");
        }
      }
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpErrors, HintsAtStepsThatRanksDoNotShare) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    if (group.rank() == 0) ddp(torch::ones({1, 2})).sum().backward();
    if (group.rank() == 1) group.broadcast(torch::ones({3}));  // it has no batches left
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("call different operations"), HasSubstr("in a backward()"),
                               HasSubstr("need Join")));
}

TEST(DdpErrors, WarnsOfABackwardWithoutAForwardThroughTheWrapper) {
  const testing_support::CapturedLog log;
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    ddp(torch::ones({1, 2})).sum().backward();
    for (int step = 0; step < 2; ++step) net->forward(torch::ones({1, 2})).sum().backward();
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  const std::vector<std::string> told = log.lines();
  EXPECT_EQ(told.size(), 2U);  // once per rank
  for (const auto& text : told)
    EXPECT_THAT(text, HasSubstr("call the wrapper's forward(), not the module's"));
  for (const char* rank : {"rank 0", "rank 1"}) EXPECT_THAT(told, Contains(HasSubstr(rank)));
}

// Evaluation and accumulation through the wrapper must not hide training that bypasses it.
TEST(DdpErrors, WarnsInSpiteOfForwardsWithoutABackward) {
  const testing_support::CapturedLog log;
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group);
    const auto input = torch::ones({1, 2});
    ddp(input).sum().backward();
    {
      const torch::NoGradGuard no_grad;
      for (int batch = 0; batch < 100; ++batch) ddp(input);
    }
    {
      const auto guard = ddp.no_sync();
      for (int batch = 0; batch < 3; ++batch) ddp(input).sum().backward();
    }
    // A frozen critic while the generator trains: the backward reaches no parameter.
    for (auto& parameter : net->parameters()) parameter.set_requires_grad(false);
    for (int step = 0; step < 3; ++step)
      ddp(torch::ones({1, 2}, torch::requires_grad())).sum().backward();
    for (auto& parameter : net->parameters()) parameter.set_requires_grad(true);
    net->forward(input).sum().backward();
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_EQ(log.lines().size(), 2U);  // once per rank
}

TEST(DdpErrors, RefusesAModuleThatIsNull) {
  const auto errors = run_group(1, "shm", [&](ProcessGroup group) {
    DistributedDataParallel ddp(torch::nn::Linear(nullptr), group);
  });
  EXPECT_THAT(errors[0], HasSubstr("DistributedDataParallel: the module is null"));
}

TEST(DdpErrors, NamesAModuleThatWasExchanged) {
  const auto errors = run_group(1, "shm", [&](ProcessGroup group) {
    DistributedDataParallel ddp(torch::nn::Linear(2, 2), group);
    ddp.module() = torch::nn::Linear(2, 2);
    ddp(torch::ones({1, 2}));
  });
  EXPECT_THAT(errors[0], HasSubstr("module() is another module now; wrap it again"));
}

TEST(DdpErrors, DoesNotWarnOfBackwardsThatFollowTheWrappersForwards) {
  const testing_support::CapturedLog log;
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    // A gradient penalty does not depend on the bias.
    torch::nn::Linear net(torch::nn::LinearOptions(2, 2).bias(false));
    DistributedDataParallel ddp(net, group);
    const auto input = torch::ones({1, 2});
    for (int step = 0; step < 3; ++step) {
      // A discriminator: one forward for real images, one for generated images, then a backward for
      // each.
      const auto real = ddp(input).sum();
      const auto generated = ddp(-input).sum();
      real.backward();
      generated.backward();
      // A second loss over a retained graph, and a gradient penalty.
      const auto output = ddp(input);
      output.sum().backward({}, /*retain_graph=*/true);
      output.square().sum().backward();
      const auto leaf = torch::ones({1, 2}, torch::requires_grad());
      const auto slope =
          torch::autograd::grad({ddp(leaf).sum()}, {leaf}, {}, true, /*create_graph=*/true)[0];
      slope.square().sum().backward();
      // An output that stays alive while another batch is evaluated.
      const auto kept = ddp(input).sum();
      {
        const torch::NoGradGuard no_grad;
        ddp(input);
      }
      kept.backward({}, /*retain_graph=*/true);
      kept.backward();
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_THAT(log.lines(), IsEmpty());
}

TEST(DdpParameterMemoryErrors, SharedParametersAreForTheShardedOptimizer) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group, {.parameter_memory = ParameterMemory::kShared});
    ddp(torch::ones({1, 2})).sum().backward();
  });
  for (const auto& error : errors)
    EXPECT_THAT(error, HasSubstr("kShared is for ZeroRedundancyOptimizer"));
}

TEST(DdpErrors, WarnsOfStridesThatChangedAfterwards) {
  const testing_support::CapturedLog log;
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(2, 2, 3));
    DistributedDataParallel ddp(net, group);
    net->weight.set_data(net->weight.contiguous(torch::MemoryFormat::ChannelsLast));
    for (int step = 0; step < 2; ++step) {
      zero_grad(*net);
      ddp.forward(torch::ones({1, 2, 4, 4})).sum().backward();
      if (net->weight.grad()[0][0][0][0].item<float>() != 4) throw Error("gradient");
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
  const std::vector<std::string> told = log.lines();
  EXPECT_EQ(told.size(), 2U);  // once per rank
  for (const auto& text : told)
    EXPECT_THAT(text, HasSubstr("parameter 'weight' has strides [18, 1, 6, 2]"));
}

TEST(DdpErrors, NamesOptionsThatDiffer) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    torch::nn::Linear net(2, 2);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = group.rank() == 1});
  });
  for (const auto& error : errors) {
    EXPECT_THAT(
        error,
        AllOf(HasSubstr(
                  "ranks have different options: rank 0 has option find_unused_parameters false"),
              HasSubstr("rank 1 has option find_unused_parameters true")));
  }
}

}  // namespace
}  // namespace lockstep
