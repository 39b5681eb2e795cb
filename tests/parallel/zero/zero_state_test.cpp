// State, parameter groups and misuse of ZeroRedundancyOptimizer.
#include <lockstep/parallel/zero_redundancy_optimizer.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/ddp/reducer.h>
#include <tests/parallel/zero/zero_cases.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing_support::all_options;
using testing_support::batch_of;
using testing_support::ddp_options;
using testing_support::kFlat;
using testing_support::kShared;
using testing_support::loss_of;
using testing_support::make_zero_net;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::Plain;
using testing_support::require_same;
using testing_support::run_group;
using testing_support::Sharded;
using testing_support::Zero;
using testing_support::ZeroNet;

// --- The state -----------------------------------------------------------------------------------

// All ranks train on one batch, so that the number of ranks does not affect the result.
void train_alike(Sharded& sharded, int first, int last) {
  for (int step = first; step < last; ++step) sharded.step(batch_of(0, step));
}

struct Saved {
  std::vector<torch::Tensor> parameters;
  NamedTensors state;
};

NamedTensors clones(const NamedTensors& state) {
  NamedTensors copies;
  for (const auto& [name, tensor] : state) copies.emplace_back(name, tensor.clone());
  return copies;
}

// Saves the state after 5 of 10 steps with two ranks, and the parameters after all 10.
std::pair<Saved, std::vector<torch::Tensor>> uninterrupted(const OptimizerOptions& options) {
  Saved saved;
  std::vector<torch::Tensor> end;
  const auto copy_parameters = [](const ZeroNet& net) {
    std::vector<torch::Tensor> copies;
    for (const auto& parameter : net->parameters()) copies.push_back(parameter.detach().clone());
    return copies;
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Sharded sharded(group, kFlat, options);
    train_alike(sharded, 0, 5);
    const NamedTensors state = sharded.optimizer.state_dict(/*root=*/1);
    if (group.rank() == 0 && !state.empty()) throw Error("only the root gets the state");
    if (group.rank() == 1) saved = {copy_parameters(sharded.net), clones(state)};
    train_alike(sharded, 5, 10);
    if (group.rank() == 0) end = copy_parameters(sharded.net);
  });
  EXPECT_EQ(errors, no_errors(2));
  return {saved, end};
}

void set_parameters(const ZeroNet& net, const std::vector<torch::Tensor>& values) {
  const torch::NoGradGuard no_grad;
  const auto parameters = net->parameters();
  for (std::size_t i = 0; i < values.size(); ++i) parameters[i].copy_(values[i]);
}

TEST_P(Zero, GoesOnFromAStateOfTwoRanks) {
  for (const OptimizerOptions& options : {all_options()[2], all_options()[4]}) {
    const auto [saved, end] = uninterrupted(options);
    run([&, &saved = saved, &end = end](ProcessGroup group) {
      const ZeroNet net = make_zero_net();
      set_parameters(net, saved.parameters);
      Sharded sharded(group, GetParam().memory, options, net);
      // Save before a backward that will rebuild the buckets.
      const int root = group.size() - 1;
      sharded.optimizer.load_state_dict(group.rank() == root ? saved.state : NamedTensors{}, root);
      train_alike(sharded, 5, 10);
      const ZeroNet expected = make_zero_net();
      set_parameters(expected, end);
      require_same(*sharded.net, *expected, 1e-5, "at the end");
      // Load once more in the middle of a run. The parameters may be those of any rank.
      group.barrier();
      set_parameters(sharded.net, saved.parameters);
      group.barrier();
      sharded.optimizer.load_state_dict(group.rank() == 0 ? saved.state : NamedTensors{});
      train_alike(sharded, 5, 10);
      require_same(*sharded.net, *expected, 1e-5, "loaded in the middle");
    });
  }
}

TEST_P(Zero, HasTheStateOfAnOptimizerThatIsNotSharded) {
  run([](ProcessGroup group) {
    for (const OptimizerOptions& options : all_options()) {
      Plain plain(group, options);
      Sharded sharded(group, GetParam().memory, options);
      for (int step = 0; step < 3; ++step) {
        plain.step(batch_of(group.rank(), step));
        sharded.step(batch_of(group.rank(), step));
      }
      const NamedTensors got = sharded.optimizer.state_dict();
      if (group.rank() != 0) continue;
      const NamedTensors state = plain.optimizer.state();
      const std::map<std::string, torch::Tensor> expected(state.begin(), state.end());
      if (got.size() != expected.size()) throw Error(str(got.size(), " for ", expected.size()));
      for (const auto& [name, tensor] : got) {
        const auto& other = expected.at(name);
        if (tensor.strides() != other.strides()) throw Error(name + " has other strides");
        if (!torch::allclose(tensor, other, GetParam().tolerance, GetParam().tolerance)) {
          throw Error(
              lockstep::str(name, " differs by ", (tensor - other).abs().max().item<double>()));
        }
      }
    }
  });
}

TEST_P(Zero, HoldsItsShareOfTheState) {
  run([](ProcessGroup group) {
    torch::nn::Sequential net(torch::nn::Linear(300, 200), torch::nn::Linear(200, 300));
    DistributedDataParallel ddp(net, group, {.parameter_memory = GetParam().memory});
    ZeroRedundancyOptimizer optimizer(ddp.core(), *net, AdamWOptions{});
    EXPECT_EQ(optimizer.state_bytes(), 0);
    ddp.forward(torch::ones({2, 300})).sum().backward();
    optimizer.step();
    const double whole = 2.0 * 4 * (2 * 300 * 200 + 500);  // two moments per parameter
    const double share = static_cast<double>(optimizer.state_bytes()) / whole;
    EXPECT_GE(share, 1.0 / group.size());
    EXPECT_LE(share, 1.02 / group.size());
  });
}

TEST(ZeroState, ThatDoesNotFitIsRefusedOnEveryRank) {
  struct Wrong {
    std::function<void(NamedTensors&)> change;
    const char* expected;
  };
  const Wrong wrongs[] = {
      {[](NamedTensors& state) { state.erase(state.begin()); }, "' is missing"},
      {[](NamedTensors& state) { state.emplace_back("exp_avg.tail", torch::ones({2})); },
       "optimizer state: 'exp_avg.tail' is unexpected"},
      {[](NamedTensors& state) { state.front().second = torch::ones({2, 3}); },
       "is Float [2, 3], expected Float ["},
      {[](NamedTensors& state) { state.front().second = torch::Tensor(); },
       "is undefined, expected Float ["},
      {[](NamedTensors& state) { state.front().second = state.front().second.to(torch::kFloat64); },
       "is Double ["},
      {[](NamedTensors& state) { state.back().second = torch::ones({}); },
       "is Float [], expected Long []"},
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    Sharded sharded(group, kFlat, AdamOptions{.lr = 0.01});
    train_alike(sharded, 0, 2);
    const NamedTensors state = clones(sharded.optimizer.state_dict());
    for (const Wrong& wrong : wrongs) {
      NamedTensors changed = state;
      if (group.rank() == 0) wrong.change(changed);
      EXPECT_THAT(message_of<CheckpointError>([&] { sharded.optimizer.load_state_dict(changed); }),
                  HasSubstr(wrong.expected));
    }
    sharded.optimizer.load_state_dict(state);
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Parameter groups ----------------------------------------------------------------------------

std::vector<ParameterGroup> groups_of(const ZeroNet& net, OptimizerOptions options) {
  return group_parameters(*net, [&](const std::string& name, const torch::Tensor& parameter) {
    std::visit(
        [&](auto& of_kind) {
          of_kind.lr = name.starts_with("head.") ? 0.02 : 0.005;
          of_kind.weight_decay = parameter.dim() < 2 ? 0 : 0.1;
        },
        options);
    return options;
  });
}

// The borders of groups cut a rank's slice of a bucket into pieces.
TEST_P(Zero, StepsGroupsAsAnOptimizerForEachRank) {
  run([](ProcessGroup group) {
    for (const OptimizerOptions& options : all_options()) {
      ZeroNet plain = make_zero_net();
      DistributedDataParallel plain_ddp(plain, group, ddp_options(ParameterMemory::kAsIs));
      Optimizer plain_optimizer(groups_of(plain, options));
      ZeroNet net = make_zero_net();
      DistributedDataParallel ddp(net, group, ddp_options(GetParam().memory));
      ZeroRedundancyOptimizer optimizer(ddp.core(), *net, groups_of(net, options));
      EXPECT_EQ(optimizer.groups(), 4U);
      for (int step = 0; step < 8; ++step) {
        const auto x = batch_of(group.rank(), step);
        const auto advance = [&](auto& wrapped, auto& stepped) {
          stepped.zero_grad();
          loss_of(wrapped.forward(x)).backward();
          stepped.scale_lr(1.0 / (1 + step));
          stepped.step();
        };
        advance(plain_ddp, plain_optimizer);
        advance(ddp, optimizer);
        if (optimizer.lr(3) != plain_optimizer.lr(3)) throw Error("learning rates");
        require_same(*net, *plain, GetParam().tolerance,
                     lockstep::str("optimizer ", options.index(), ", step ", step));
      }
      // Each optimizer loads the other's state, and so does one without groups.
      const NamedTensors state = optimizer.state_dict();
      optimizer.load_state_dict(state);
      if (group.rank() != 0) continue;
      EXPECT_EQ(state.size(), plain_optimizer.state().size());
      EXPECT_EQ(state.size(), Optimizer(*plain, options).state().size());
    }
  });
}

// Where the device decides, each group has its own learning rate, also after a change.
TEST_P(Zero, StepsGroupsOnTheDeviceAsOnTheHost) {
  run([](ProcessGroup group) {
    if (GetParam().memory == kShared) return;
    for (const OptimizerOptions& options : all_options()) {
      ZeroNet on_host = make_zero_net(), on_device = make_zero_net();
      DistributedDataParallel host_ddp(on_host, group, ddp_options(kFlat));
      DistributedDataParallel device_ddp(on_device, group, ddp_options(kFlat));
      ZeroRedundancyOptimizer host(host_ddp.core(), *on_host, groups_of(on_host, options));
      ZeroRedundancyOptimizer device(device_ddp.core(), *on_device, groups_of(on_device, options));
      for (int step = 0; step < 4; ++step) {
        const auto backward = [&](auto& ddp, auto& optimizer) {
          optimizer.zero_grad();
          loss_of(ddp.forward(batch_of(group.rank(), step))).backward();
          optimizer.set_lr(2, 0.03 / (1 + step));
        };
        backward(host_ddp, host);
        host.step();
        backward(device_ddp, device);
        device.step_unless(torch::zeros({1}));
        require_same(*on_device, *on_host, 1e-6,
                     lockstep::str("optimizer ", options.index(), ", step ", step));
      }
    }
  });
}

// A step on the host, or one that the device may skip.
void train_on(bool device, Sharded& sharded, const torch::Tensor& x) {
  sharded.optimizer.zero_grad();
  sharded.backward(x);
  device ? sharded.optimizer.step_unless(torch::zeros({1})) : sharded.optimizer.step();
}

// The loaded counts of steps replace those that the device keeps.
TEST_P(Zero, LoadsAStateAfterStepsOnTheDevice) {
  run([](ProcessGroup group) {
    if (GetParam().memory == kShared) return;
    const AdamWOptions options{.lr = 0.01};
    Sharded host(group, kFlat, options), device(group, kFlat, options);
    const auto train = [&](int first, int last) {
      for (int step = first; step < last; ++step) {
        train_on(false, host, batch_of(group.rank(), step));
        train_on(true, device, batch_of(group.rank(), step));
      }
    };
    train(0, 2);
    const NamedTensors state = clones(device.optimizer.state_dict());
    train(2, 5);
    host.optimizer.load_state_dict(state);
    device.optimizer.load_state_dict(state);
    train(5, 7);
    require_same(*device.net, *host.net, 1e-6, "at the end");
    const NamedTensors expected = host.optimizer.state_dict();
    const NamedTensors got = device.optimizer.state_dict();
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!expected[i].first.starts_with("step.")) continue;
      EXPECT_EQ(expected[i].second.item<std::int64_t>(), 4) << expected[i].first;
      EXPECT_EQ(got[i].second.item<std::int64_t>(), 4) << got[i].first;
    }
  });
}

// The first backward that communicates rebuilds the buckets, after two steps on the device.
TEST_P(Zero, StepsOnTheDeviceBeforeAnythingWasReduced) {
  run([](ProcessGroup group) {
    if (GetParam().memory == kShared) return;
    const AdamWOptions options{.lr = 0.01};
    Sharded host(group, kFlat, options), device(group, kFlat, options);
    const auto train = [](Sharded& sharded, bool on_device) {
      {
        const auto guard = sharded.ddp.no_sync();
        for (int step = 0; step < 2; ++step) train_on(on_device, sharded, batch_of(0, step));
      }
      for (int step = 2; step < 5; ++step) train_on(on_device, sharded, batch_of(0, step));
    };
    train(host, false);
    train(device, true);
    require_same(*device.net, *host.net, 1e-6, "at the end");
    EXPECT_GT(device.ddp.core().reducer()->grad_buckets().front().layout, 0U);
  });
}

// Ranks that share the parameters reduce in step(), so that backward has no reductions to show.
TEST(ZeroSpans, HaveNoBucketsWhereParametersAreShared) {
  for (const auto memory : {kFlat, kShared}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      Sharded sharded(group, memory, SgdOptions{.lr = 0.1});
      sharded.step(batch_of(group.rank(), 0));
      sharded.step(batch_of(group.rank(), 1));
      bool has_buckets = false, has_backward = false;
      for (const Span& span : sharded.ddp.core().spans("world")) {
        has_buckets = has_buckets || span.track.starts_with("bucket ");
        has_backward = has_backward || span.track == "backward";
      }
      EXPECT_EQ(has_buckets, memory == kFlat);
      EXPECT_TRUE(has_backward);
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(2));
  }
}

TEST(ZeroRates, AreThoseOfTheGroups) {
  const auto errors = run_group(1, "auto", [](ProcessGroup group) {
    ZeroNet net = make_zero_net();
    DistributedDataParallel ddp(net, group, ddp_options(kFlat));
    ZeroRedundancyOptimizer optimizer(ddp.core(), *net,
                                      groups_of(net, SgdOptions{.momentum = 0.5}));
    const auto rates = [&] {
      std::vector<double> all;
      for (std::size_t g = 0; g < optimizer.groups(); ++g) all.push_back(optimizer.lr(g));
      return all;
    };
    EXPECT_EQ(rates(), (std::vector{0.005, 0.005, 0.02, 0.02}));
    optimizer.set_lr(2, 0.25);
    EXPECT_EQ(rates(), (std::vector{0.005, 0.005, 0.25, 0.02}));
    optimizer.scale_lr(2);
    EXPECT_EQ(rates(), (std::vector{0.01, 0.01, 0.04, 0.04}));
    optimizer.set_lr(0.5);
    EXPECT_EQ(rates(), (std::vector{0.5, 0.5, 0.5, 0.5}));
    EXPECT_EQ(optimizer.momentum(3), 0.5);
    optimizer.set_momentum(0.75);
    EXPECT_EQ(optimizer.momentum(0), 0.75);
    EXPECT_EQ(optimizer.momentum(3), 0.75);
    EXPECT_THROW(optimizer.set_lr(4, 1), ConfigError);
    EXPECT_THROW(optimizer.momentum(4), ConfigError);
  });
  EXPECT_EQ(errors, no_errors(1));
}

// A rank's parts of the gradients of some parameters: together, the ranks' parts are all of them.
TEST_P(Zero, GivesTheGradientsOfSomeParameters) {
  run([](ProcessGroup group) {
    Plain plain(group, SgdOptions{.lr = 0.1});
    Sharded sharded(group, GetParam().memory, SgdOptions{.lr = 0.1});
    for (int step = 0; step < 2; ++step) {  // the buckets are final in the second
      plain.optimizer.zero_grad();
      plain.backward(batch_of(group.rank(), step));
      sharded.optimizer.zero_grad();
      sharded.backward(batch_of(group.rank(), step));
      const Tensors parts =
          sharded.optimizer.gradients_of({sharded.net->head->weight, sharded.net->conv->bias});
      torch::Tensor sums = torch::zeros({3}, torch::kFloat64);
      for (const torch::Tensor& part : parts) {
        const torch::Tensor wide = part.to(torch::kFloat64);
        sums[0] += wide.sum();
        sums[1] += wide.square().sum();
        sums[2] += static_cast<double>(part.numel());
      }
      group.all_reduce(sums);
      const torch::Tensor all = torch::cat({plain.net->head->weight.grad().flatten(),
                                            plain.net->conv->bias.grad().flatten()})
                                    .to(torch::kFloat64);
      const auto expected =
          torch::stack({all.sum(), all.square().sum(),
                        torch::tensor(static_cast<double>(all.numel()), torch::kFloat64)});
      if (!torch::allclose(sums, expected, 1e-4, 1e-5)) {
        throw Error(lockstep::str("step ", step, ": ", sums, " for ", expected));
      }
      plain.optimizer.step();
      sharded.optimizer.step();
    }
  });
}

// The extra layer is not used, and another tensor is no parameter.
TEST_P(Zero, GivesNoGradientsWhereThereAreNone) {
  run([](ProcessGroup group) {
    DdpOptions with_search = ddp_options(GetParam().memory);
    with_search.find_unused_parameters = true;
    Sharded sharded(group, with_search, SgdOptions{.lr = 0.1});
    sharded.net->zero_grad();
    loss_of(sharded.ddp.forward(batch_of(group.rank(), 0), /*with_extra=*/false)).backward();
    const torch::Tensor& unused = sharded.net->extra->weight;
    EXPECT_TRUE(sharded.optimizer.gradients_of({unused, torch::ones({3})}).empty());
    torch::Tensor elements = torch::zeros({1}, torch::kInt64);
    for (const torch::Tensor& part :
         sharded.optimizer.gradients_of({unused, sharded.net->head->weight})) {
      elements += part.numel();
    }
    group.all_reduce(elements);
    EXPECT_EQ(elements.item<std::int64_t>(), sharded.net->head->weight.numel());
  });
}

TEST(ZeroMisuse, GroupsThatCannotBe) {
  struct Wrong {
    const char* expected;
    std::function<void(std::vector<ParameterGroup>&)> change;
  };
  const std::vector<Wrong> wrongs = {
      {"parameter 'head.weight' is in no group",
       [](auto& groups) {
         std::erase_if(groups, [](const ParameterGroup& group) {
           return group.parameters.front().first == "head.weight";
         });
       }},
      {"parameter group 1 remembers [momentum_buffer], group 0 []; give all groups a momentum, or "
       "amsgrad, or none",
       [](auto& groups) { std::get<SgdOptions>(groups[1].options).momentum = 0.9; }},
      {"'again' of group 4 is in group 0 as 'conv.weight'",
       [](auto& groups) {
         groups.push_back({{{"again", groups[0].parameters[0].second}}, groups[0].options});
       }},
  };
  const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
    for (const Wrong& wrong : wrongs) {
      ZeroNet net = make_zero_net();
      DistributedDataParallel ddp(net, group, ddp_options(kFlat));
      auto groups = groups_of(net, SgdOptions{});
      wrong.change(groups);
      EXPECT_THAT(
          message_of<ConfigError>([&] { ZeroRedundancyOptimizer(ddp.core(), *net, groups); }),
          HasSubstr(wrong.expected));
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Misuse --------------------------------------------------------------------------------------

TEST(ZeroMisuse, ParametersInMemoryOfTheirOwn) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    EXPECT_THAT(
        message_of<ConfigError>([&] { Sharded(group, ParameterMemory::kAsIs, SgdOptions{}); }),
        HasSubstr("set DdpOptions::parameter_memory to kFlat"));
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ZeroMisuse, SparseGradients) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(10, 4).sparse(true));
    DistributedDataParallel ddp(net, group, {.parameter_memory = kFlat});
    EXPECT_THAT(
        message_of<ConfigError>([&] { ZeroRedundancyOptimizer(ddp.core(), *net, SgdOptions{}); }),
        HasSubstr("sparse gradients, which cannot be sharded"));
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The first reduction left the mean in this rank's slices and local gradients in the others.
TEST(ZeroMisuse, TwoReductionsBeforeAStep) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    Sharded sharded(group, kFlat, SgdOptions{});
    train_alike(sharded, 0, 1);
    sharded.optimizer.zero_grad();
    sharded.backward(batch_of(0, 1));
    sharded.backward(batch_of(0, 2));
  });
  for (const auto& error : errors) EXPECT_THAT(error, HasSubstr("accumulate them under no_sync()"));
}

TEST(ZeroMisuse, BackwardAfterAStepWithoutClearing) {
  for (const auto memory : {kFlat, kShared}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      Sharded sharded(group, memory, SgdOptions{});
      train_alike(sharded, 0, 2);
      sharded.optimizer.clip_grad_norm(1);
      sharded.optimizer.step();
      sharded.backward(batch_of(0, 2));
    });
    for (const auto& error : errors) EXPECT_THAT(error, HasSubstr("call zero_grad() after each"));
  }
}

// Moved as torch::load() or a change of memory format does, on all ranks or on one.
TEST(ZeroMisuse, ParametersThatWereMoved) {
  for (const auto memory : {kFlat, kShared}) {
    for (const int first : {0, 1}) {
      const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
        Sharded sharded(group, memory, SgdOptions{});
        train_alike(sharded, 0, 2);
        auto& bias = sharded.net->head->bias;
        if (group.rank() >= first) bias.set_data(bias.detach().clone());
        train_alike(sharded, 2, 3);
      });
      for (const auto& error : errors) {
        EXPECT_THAT(error, HasSubstr("parameter 'head.bias' was moved after"));
      }
    }
  }
}

// The step reads and writes the buckets, so that it would not notice these changes between
// backward() and step().
TEST(ZeroMisuse, ParametersAndGradientsThatChanged) {
  struct Case {
    const char* expected;
    std::function<void(ZeroNet&)> change;
  };
  const Case cases[] = {
      {"on cpu; construct it after changing the module",
       [](ZeroNet& net) { net->to(torch::kFloat64); }},
      {"parameter 'head.bias' was Float [7] on cpu when DistributedDataParallel was constructed "
       "and is now Float [4] on cpu",
       [](ZeroNet& net) { net->head->bias.set_data(net->head->bias.detach().narrow(0, 0, 4)); }},
      {"parameter 'extra.weight' was moved after",
       [](ZeroNet& net) { net->extra->weight.set_data(net->extra->weight.detach().t()); }},
      {"parameter 'head.bias' has a different gradient tensor than the one backward() wrote, so "
       "the step would ignore it; modify the tensors that gradients() returns in place",
       [](ZeroNet& net) { net->head->bias.mutable_grad() = net->head->bias.grad() * 0.5; }},
  };
  for (const Case& c : cases) {
    for (const auto memory : {kFlat, kShared}) {
      const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
        Sharded sharded(group, memory, AdamOptions{});
        train_alike(sharded, 0, 2);
        sharded.optimizer.zero_grad();
        sharded.backward(batch_of(0, 2));
        c.change(sharded.net);
        sharded.optimizer.step();
      });
      for (const auto& error : errors) EXPECT_THAT(error, HasSubstr(c.expected));
    }
  }
}

// Momentum and weight decay do not move a parameter that was frozen, as with Optimizer.
TEST(ZeroMisuse, ParametersThatWereFrozenStayWhereTheyAre) {
  for (const auto memory : {kFlat, kShared}) {
    const auto errors = run_group(2, "shm", [&](ProcessGroup group) {
      DdpOptions options = ddp_options(memory);
      options.find_unused_parameters = true;
      Sharded sharded(group, options, SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
      train_alike(sharded, 0, 3);
      const torch::Tensor before = sharded.net->extra->weight.detach().clone(),
                          other = sharded.net->head->weight.detach().clone();
      group.barrier();  // in shared memory, the other rank may already step
      sharded.net->extra->weight.requires_grad_(false);
      train_alike(sharded, 3, 5);
      if (!sharded.net->extra->weight.equal(before)) throw Error("a frozen parameter moved");
      if (sharded.net->head->weight.equal(other)) throw Error("nothing was trained");
      group.barrier();
    });
    EXPECT_EQ(errors, no_errors(2));
  }
}

}  // namespace
}  // namespace lockstep
