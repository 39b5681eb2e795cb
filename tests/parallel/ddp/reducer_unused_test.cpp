// Parameters that are unused in a step or used several times, and graphs that are retained.
#include <lockstep/parallel/ddp/reducer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/distributed_data_parallel.h>
#include <tests/parallel/layers.h>
#include <tests/parallel/mean_of_ranks.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::expect_gradients;
using testing_support::Gradients;
using testing_support::input_of;
using testing_support::Layers;
using testing_support::LayersImpl;
using testing_support::mean_of_ranks;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::without_bias;
using testing_support::zero_grad;

// --- Unused parameters

// As in fine-tuning with adapters, frozen parameters are in no bucket, and the buckets of the
// others are complete.
TEST(DdpUnused, FrozenParametersBelongToNoBucket) {
  const auto freeze = [](Layers& net) {
    for (const auto& parameter : net->layers[0]->parameters()) parameter.set_requires_grad(false);
    net->layers[2]->weight.set_requires_grad(false);
  };
  const Gradients expected = mean_of_ranks(2, [&](int rank) {
    Layers alone(3);
    freeze(alone);
    alone->forward(input_of(rank), "abc").sum().backward();
    return alone;
  });
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Layers net(3);
    freeze(net);
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 1e-4, .first_bucket_cap_mb = 1e-4});
    for (int step = 0; step < 2; ++step) {
      zero_grad(*net);
      ddp.forward(input_of(group.rank()), "abc").sum().backward();
      expect_gradients(*net, expected);
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpUnused, AParameterFrozenLaterIsNamed) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Layers net(2);
    DistributedDataParallel ddp(net, group);
    net->layers[0]->bias.set_requires_grad(false);
    ddp.forward(input_of(0), "ab").sum().backward();
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("1 of 4 parameters received no gradient"),
                             HasSubstr("a.bias"), HasSubstr("find_unused_parameters = true"),
                             HasSubstr("before the module is wrapped")));
  }
}

// Only the first five of many names are shown.
TEST(DdpUnused, FiveParametersAreNamed) {
  struct Case {
    int layers;
    bool freezes;  // a parameter of the only layer that runs
    const char* expected;
  };
  for (const Case& c : {Case{3, false, "b.weight, b.bias, c.weight, c.bias; set"},
                        Case{3, true, "a.bias, b.weight, b.bias, c.weight, c.bias; set"},
                        Case{4, false, "b.weight, b.bias, c.weight, c.bias, d.weight and 1 more; "},
                        Case{4, true, "a.bias, b.weight, b.bias, c.weight, c.bias and 2 more; "}}) {
    const auto errors = run_group(1, "auto", [&](ProcessGroup group) {
      Layers net(c.layers);
      DistributedDataParallel ddp(net, group);
      if (c.freezes) net->layers[0]->bias.set_requires_grad(false);
      ddp.forward(input_of(0), "a").sum().backward();
    });
    EXPECT_THAT(errors[0], HasSubstr(std::string("no gradient in backward(): ") + c.expected));
  }
}

struct UnusedCase {
  const char* name;
  const char* backend;
  std::vector<std::vector<std::string>> paths;  // [step][rank]
};

void PrintTo(const UnusedCase& c, std::ostream* out) { *out << c.name << ' ' << c.backend; }

class DdpUnusedPaths : public testing::TestWithParam<UnusedCase> {};

// In each step the ranks use different branches. Only the second step uses d, so that d keeps its
// gradient in the third.
TEST_P(DdpUnusedPaths, CountAsZero) {
  const auto& paths = GetParam().paths;
  const int size = static_cast<int>(paths[0].size());
  const auto errors = run_group(size, GetParam().backend, [&](ProcessGroup group) {
    Layers net(4);
    DistributedDataParallel ddp(
        net, group,
        {.bucket_cap_mb = 1e-4, .first_bucket_cap_mb = 1e-4, .find_unused_parameters = true});
    for (std::size_t step = 0; step < paths.size(); ++step) {
      const Gradients expected = mean_of_ranks(size, [&](int rank) {
        Layers alone(4);
        alone->forward(input_of(rank), paths[step][static_cast<std::size_t>(rank)])
            .sum()
            .backward();
        return alone;
      });
      zero_grad(*net);
      ddp.forward(input_of(group.rank()), paths[step][static_cast<std::size_t>(group.rank())])
          .sum()
          .backward();
      expect_gradients(*net, expected);
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(size));
}

const std::vector<std::vector<std::string>> kPaths = {{"abc", "ab", "ac"},
                                                      {"ad", "bd", "cd"},
                                                      {"a", "b", "ab"},
                                                      {"abcd", "abcd", "abcd"},
                                                      {"a", "a", "a"}};
INSTANTIATE_TEST_SUITE_P(Cases, DdpUnusedPaths,
                         testing::Values(UnusedCase{"branches", "shm", kPaths},
                                         UnusedCase{"branches", "gloo", kPaths},
                                         UnusedCase{"branches", "hierarchical", kPaths}));

TEST(DdpUnused, GradientsOfParametersThatNobodyUsesStay) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Layers net(2);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    ddp.forward(input_of(group.rank()), "ab").sum().backward();
    const torch::Tensor before = net->layers[1]->weight.grad().clone();
    for (auto& parameter : net->layers[0]->parameters()) parameter.mutable_grad().zero_();
    ddp.forward(input_of(group.rank()), "a").sum().backward();
    if (!torch::equal(net->layers[1]->weight.grad(), before)) throw Error("changed");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// PyTorch reports an error when the loss does not depend on every output of forward().
TEST(DdpUnused, OutputsMayBeLeftOutOfTheLoss) {
  struct TwoHeadsImpl : torch::nn::Module {
    torch::Tensor first(torch::Tensor x) { return a->forward(x); }
    std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x) { return {a(x), b(x)}; }
    torch::nn::Linear a = register_module("a", torch::nn::Linear(4, 4));
    torch::nn::Linear b = register_module("b", torch::nn::Linear(4, 4));
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    auto net = std::make_shared<TwoHeadsImpl>();
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    const auto [x, y] = ddp.forward(torch::ones({1, 4}));
    (group.rank() == 0 ? x : y).sum().backward();
    const torch::Tensor half = torch::full({4}, 0.5);
    if (!torch::equal(net->a->bias.grad(), half) || !torch::equal(net->b->bias.grad(), half))
      throw Error("halves");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpUnused, WhatAccumulatedWithoutCommunicationIsUsed) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Layers net(2), alone(2);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    {
      const auto guard = ddp.no_sync();
      ddp.forward(input_of(0), "ab").sum().backward();
    }
    ddp.forward(input_of(1), "a").sum().backward();
    alone->forward(input_of(0), "ab").sum().backward();
    alone->forward(input_of(1), "a").sum().backward();
    expect_gradients(*net, testing_support::gradients_of(*alone));
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The other rank has no gradient of b. It must also receive the mean, to which it contributes zero.
TEST(DdpUnused, WhatOneRankAccumulatedWithoutCommunicationIsForAll) {
  const Gradients expected = mean_of_ranks(2, [](int rank) {
    Layers alone(2);
    alone->forward(input_of(rank), rank == 0 ? "ab" : "a").sum().backward();
    alone->forward(input_of(rank, 1), "a").sum().backward();
    return alone;
  });
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Layers net(2);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    {
      const auto guard = ddp.no_sync();
      ddp.forward(input_of(group.rank()), group.rank() == 0 ? "ab" : "a").sum().backward();
    }
    ddp.forward(input_of(group.rank(), 1), "a").sum().backward();
    expect_gradients(*net, expected);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The graph contains both layers, but the backward stops at the given inputs.
TEST(DdpUnused, WhatABackwardForGivenInputsLeavesOutIsUnused) {
  const auto parameters_of = [](const Layers& net, int layer) {
    return net->layers[static_cast<std::size_t>(layer)]->parameters();
  };
  const Gradients expected = mean_of_ranks(2, [&](int rank) {
    Layers alone(2);
    alone->forward(input_of(rank), "ab").sum().backward({}, false, false, parameters_of(alone, 1));
    return alone;
  });
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Layers net(2);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    const torch::Tensor loss = ddp.forward(input_of(group.rank()), "ab").sum();
    loss.backward({}, /*keep_graph=*/false, /*create_graph=*/false, parameters_of(net, 1));
    expect_gradients(*net, expected);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// A custom function may return an undefined gradient for a parameter.
TEST(DdpUnused, AnUndefinedGradientIsZero) {
  struct First : torch::autograd::Function<First> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x,
                                 torch::Tensor) {
      return x * 1;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list gradients) {
      return {gradients[0], torch::Tensor()};
    }
  };
  struct NetImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x, bool both) {
      x = a(x);
      return both ? b(x) : First::apply(x, b->weight);
    }
    torch::nn::Linear a = register_module("a", without_bias(4)),
                      b = register_module("b", without_bias(4));
  };
  for (const DdpOptions& options : {DdpOptions{}, DdpOptions{.find_unused_parameters = true},
                                    DdpOptions{.static_graph = true}}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      auto net = std::make_shared<NetImpl>();
      DistributedDataParallel ddp(net, group, options);
      for (int step = 0; step < 3; ++step) {
        zero_grad(*net);
        {
          const auto guard = ddp.no_sync();
          ddp.forward(torch::ones({1, 4}), /*both=*/false).sum().backward();
        }
        zero_grad(*net);
        const torch::Tensor x = torch::ones({1, 4});
        ddp.forward(x, group.rank() == 0).sum().backward();
        const torch::Tensor expected = net->a->forward(x).detach().expand({4, 4}) / 2;
        if (!torch::allclose(net->b->weight.grad(), expected)) throw Error("gradient");
      }
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(2));
  }
}

// --- Nested backwards and retained graphs

// Recomputes `layer` during backward and runs a nested backward over it, as checkpointing does.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                               LayersImpl* net, std::string order) {
    context->save_for_backward({x});
    context->saved_data["net"] = reinterpret_cast<std::int64_t>(net);
    context->saved_data["order"] = order;
    const torch::NoGradGuard no_grad;
    return net->forward(x, order);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* net = reinterpret_cast<LayersImpl*>(context->saved_data["net"].toInt());
    const torch::AutoGradMode grad(true);
    const torch::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const torch::Tensor y = net->forward(x, context->saved_data["order"].toStringRef());
    y.backward(gradients[0]);
    return {x.grad(), {}, {}};
  }
};

struct CheckpointedImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, std::string first, std::string second,
                        std::string plain = "") {
    x = Checkpoint::apply(x.requires_grad_(), layers.get(), first);
    return layers(Checkpoint::apply(x, layers.get(), second), plain);
  }
  Layers layers = register_module("layers", Layers(3));
};
TORCH_MODULE(Checkpointed);

// Layer a runs in both parts and gets two gradients in one backward. Layer c is unused.
TEST(DdpStaticGraph, TakesSeveralGradientsAndUnusedParameters) {
  const Gradients expected = mean_of_ranks(2, [&](int rank) {
    Checkpointed alone;
    alone->forward(input_of(rank), "ab", "a").sum().backward();
    return alone;
  });
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Checkpointed net;
    DistributedDataParallel ddp(
        net, group, {.bucket_cap_mb = 1e-4, .first_bucket_cap_mb = 1e-4, .static_graph = true});
    for (int step = 0; step < 4; ++step) {
      zero_grad(*net);
      ddp.forward(input_of(group.rank()), "ab", "a").sum().backward();
      expect_gradients(*net, expected);
    }
    if (ddp.statistics().steps != 4) throw Error("reductions");
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(DdpStaticGraph, NamesWhatChanged) {
  struct Case {
    std::string first, second;
    std::vector<const char*> expected;
  };
  const std::vector<Case> cases = {
      {"abc", "ab", {"2 of 6 parameters received no gradient", "c.weight", "the graph changed"}},
      {"ab",
       "abc",
       {"parameter 'c.", "received 1 gradients in this backward() and 0 in the first"}}};
  for (const Case& c : cases) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      Layers net(3);
      DistributedDataParallel ddp(net, group, {.static_graph = true});
      ddp.forward(input_of(0), c.first).sum().backward();
      ddp.forward(input_of(0), c.second).sum().backward();
    });
    for (const auto& error : errors) {
      for (const char* part : c.expected) EXPECT_THAT(error, HasSubstr(part));
    }
  }
}

// All gradients come from nested backwards. The outer backward produces none itself, and must still
// be detected.
TEST(DdpStaticGraph, WhatInnerBackwardsLeaveOutIsNamed) {
  struct Case {
    bool static_graph;
    const char* expected;
  };
  for (const Case& c :
       {Case{false, "2 of 6 parameters received no gradient"}, Case{true, "the graph changed"}}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      Checkpointed net;
      DistributedDataParallel ddp(net, group, {.static_graph = c.static_graph});
      if (c.static_graph) ddp.forward(input_of(0), "ab", "c").sum().backward();
      zero_grad(*net);
      ddp.forward(input_of(0), "a", "b").sum().backward();
    });
    for (const auto& error : errors) {
      EXPECT_THAT(error, AllOf(HasSubstr(c.expected), HasSubstr("layers.c.weight")));
    }
  }
}

TEST(DdpErrors, NamesAParameterThatIsReadyTwice) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Checkpointed net;
    DistributedDataParallel ddp(net, group);
    ddp.forward(input_of(0), "ab", "ac").sum().backward();
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("parameter 'layers.a."), HasSubstr("is marked ready twice"),
                             HasSubstr("static_graph = true")));
  }
}

TEST(DdpErrors, SaysThatASearchDoesNotSeeCheckpoints) {
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Checkpointed net;
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    ddp.forward(input_of(0), "a", "b", "c").sum().backward();
  });
  for (const auto& error : errors) {
    EXPECT_THAT(
        error,
        AllOf(HasSubstr("received a gradient that the graph of this backward() does not show"),
              HasSubstr("use static_graph")));
  }
}

// Each nested backward is reduced separately, and its gradients are added to those already
// averaged.
TEST(DdpUnused, CheckpointsAloneAreBackwardsOfTheirOwn) {
  const Gradients expected = mean_of_ranks(2, [&](int rank) {
    Checkpointed alone;
    alone->forward(input_of(rank), "ab", "a").sum().backward();
    return alone;
  });
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Checkpointed net;
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    ddp.forward(input_of(group.rank()), "ab", "a").sum().backward();
    expect_gradients(*net, expected);
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep
