// ZeroRedundancyOptimizer beside DistributedDataParallel with an optimizer for each rank.
#include <lockstep/parallel/zero_redundancy_optimizer.h>

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/grad_scaler.h>
#include <lockstep/optim/optimizer.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;

// Two layers of odd sizes, one with its own strides, and one that may be left out.
struct ZeroNetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, bool with_extra = true) {
    x = torch::tanh(conv(x)).flatten(1);
    if (with_extra) x = x + extra(x);
    return head(x);
  }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(3, 5, 3));
  torch::nn::Linear extra = register_module("extra", torch::nn::Linear(45, 45));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(45, 7));
};
TORCH_MODULE(ZeroNet);

// The same values in every net. LibTorch's generator would be shared by the ranks' threads.
ZeroNet make_zero_net(torch::ScalarType dtype = torch::kFloat32) {
  const torch::NoGradGuard no_grad;
  ZeroNet net;
  double phase = 0;
  for (auto& parameter : net->parameters()) {
    const auto numbers = torch::arange(parameter.numel(), torch::kFloat64) * 12.9 + ++phase;
    parameter.copy_(numbers.sin().mul(0.2).view(parameter.sizes()));
  }
  net->conv->weight.set_data(net->conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  net->to(dtype);
  return net;
}

torch::Tensor batch_of(int rank, int step, torch::ScalarType dtype = torch::kFloat32) {
  const auto numbers = torch::arange(4 * 3 * 5 * 5, torch::kFloat64) * 0.37 + rank * 11 + step;
  return numbers.cos().view({4, 3, 5, 5}).to(dtype);
}

torch::Tensor loss_of(const torch::Tensor& output) { return output.square().mean(); }

// Some buckets of several parameters.
DdpOptions ddp_options(ParameterMemory memory) {
  return {.bucket_cap_mb = 0.002, .first_bucket_cap_mb = 0.001, .parameter_memory = memory};
}

// A net in DistributedDataParallel and what steps it.
struct Sharded {
  Sharded(const ProcessGroup& group, ParameterMemory memory, const OptimizerOptions& options,
          ZeroNet of = make_zero_net())
      : net(std::move(of)),
        ddp(net, group, ddp_options(memory)),
        optimizer(ddp.core(), *net, options) {}
  void backward(const torch::Tensor& x) { loss_of(ddp.forward(x)).backward(); }
  void step(const torch::Tensor& x) {
    optimizer.zero_grad();
    backward(x);
    optimizer.step();
  }
  ZeroNet net;
  DistributedDataParallel<ZeroNet> ddp;
  ZeroRedundancyOptimizer optimizer;
};

struct Plain {
  Plain(const ProcessGroup& group, const OptimizerOptions& options, ZeroNet of = make_zero_net())
      : net(std::move(of)),
        ddp(net, group, ddp_options(ParameterMemory::kAsIs)),
        optimizer(*net, options) {}
  void backward(const torch::Tensor& x) { loss_of(ddp.forward(x)).backward(); }
  void step(const torch::Tensor& x) {
    optimizer.zero_grad();
    backward(x);
    optimizer.step();
  }
  ZeroNet net;
  DistributedDataParallel<ZeroNet> ddp;
  Optimizer optimizer;
};

// Throws, so that it can be used on the threads of ranks. A tolerance of 0 is bit for bit.
void require_same(const torch::nn::Module& got, const torch::nn::Module& expected, double tolerance,
                  const std::string& when) {
  const auto wanted = expected.named_parameters();
  for (const auto& item : got.named_parameters()) {
    const auto a = item.value().detach().to(torch::kFloat64);
    const auto b = wanted[item.key()].detach().to(torch::kFloat64);
    const double difference = (a - b).abs().max().item<double>();
    const double scale = b.abs().max().item<double>();
    if (!(difference <= tolerance * scale)) {
      throw Error(lockstep::str(when, ": ", item.key(), " differs by ", difference, " of ", scale));
    }
  }
}

struct ZeroCase {
  const char* name;
  std::string backend;
  int size;
  ParameterMemory memory;
  double tolerance;  // 0: the order of additions is that of all_reduce
};
constexpr auto kFlat = ParameterMemory::kFlat;
constexpr auto kShared = ParameterMemory::kShared;

class Zero : public ::testing::TestWithParam<ZeroCase> {
 protected:
  static void run(const std::function<void(ProcessGroup)>& body) {
    EXPECT_EQ(run_group(GetParam().size, GetParam().backend, body), no_errors(GetParam().size));
  }
};
INSTANTIATE_TEST_SUITE_P(Cases, Zero,
                         ::testing::Values(ZeroCase{"shm2", "shm", 2, kFlat, 0},
                                           ZeroCase{"shared3", "shm", 3, kShared, 0},
                                           ZeroCase{"gloo3", "gloo", 3, kFlat, 1e-6},
                                           ZeroCase{"hierarchical3", "hierarchical", 3, kFlat, 1e-6},
                                           ZeroCase{"one", "auto", 1, kFlat, 0}),
                         [](const auto& info) { return info.param.name; });

const std::vector<OptimizerOptions>& all_options() {
  static const std::vector<OptimizerOptions> options = {
      SgdOptions{.lr = 0.02},
      SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.01},
      SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
      AdamOptions{.lr = 0.01, .weight_decay = 0.01},
      AdamWOptions{.lr = 0.01, .amsgrad = true},
  };
  return options;
}

class ZeroSteps : public Zero {};
INSTANTIATE_TEST_SUITE_P(
    Cases, ZeroSteps,
    ::testing::Values(ZeroCase{"shm2", "shm", 2, kFlat, 0}, ZeroCase{"shm3", "shm", 3, kFlat, 0},
                      ZeroCase{"shared2", "shm", 2, kShared, 0}, ZeroCase{"shared3", "shm", 3, kShared, 0},
                      ZeroCase{"gloo2", "gloo", 2, kFlat, 0}, ZeroCase{"gloo3", "gloo", 3, kFlat, 1e-6},
                      ZeroCase{"hierarchical3", "hierarchical", 3, kFlat, 1e-6},
                      ZeroCase{"one", "auto", 1, kFlat, 0}, ZeroCase{"one_shared", "auto", 1, kShared, 0}),
    [](const auto& info) { return info.param.name; });

TEST_P(ZeroSteps, EqualThoseOfAnOptimizerForEachRank) {
  run([](ProcessGroup group) {
    for (const OptimizerOptions& options : all_options()) {
      Plain plain(group, options);
      Sharded sharded(group, GetParam().memory, options);
      for (int step = 0; step < 20; ++step) {
        const auto x = batch_of(group.rank(), step);
        plain.step(x);
        sharded.step(x);
        require_same(*sharded.net, *plain.net, GetParam().tolerance,
                     lockstep::str("optimizer ", options.index(), ", step ", step));
      }
    }
  });
}

TEST_P(Zero, TakesOtherTypes) {
  run([](ProcessGroup group) {
    for (const auto dtype : {torch::kBFloat16, torch::kFloat64}) {
      const AdamWOptions options{.lr = 0.01};
      Plain plain(group, options, make_zero_net(dtype));
      Sharded sharded(group, GetParam().memory, options, make_zero_net(dtype));
      for (int step = 0; step < 5; ++step) {
        const auto x = batch_of(group.rank(), step, dtype);
        plain.step(x);
        sharded.step(x);
      }
      const bool half = dtype == torch::kBFloat16;
      const double tolerance = GetParam().tolerance == 0 ? 0 : half ? 0.02 : 1e-12;
      require_same(*sharded.net, *plain.net, tolerance, half ? "bfloat16" : "float64");
    }
  });
}

TEST_P(Zero, ClipsScalesAndAccumulates) {
  run([](ProcessGroup group) {
    const SgdOptions options{.lr = 0.01, .momentum = 0.9};
    Plain plain(group, options);
    Sharded sharded(group, GetParam().memory, options);
    const auto accumulate = [&](auto& wrapped, int step) {
      wrapped.optimizer.zero_grad();
      {
        const auto guard = wrapped.ddp.no_sync();
        wrapped.backward(batch_of(group.rank(), step));
      }
      wrapped.backward(batch_of(group.rank(), step + 100));
    };
    for (int step = 0; step < 6; ++step) {
      accumulate(plain, step);
      accumulate(sharded, step);
      at::_foreach_mul_(plain.optimizer.gradients(), 3.0);
      const Tensors own = sharded.optimizer.gradients();
      if (!own.empty()) at::_foreach_mul_(own, 3.0);
      const double max_norm = step % 2 == 0 ? 0.01 : 100;  // clipped and not
      const auto expected = clip_grad_norm_(plain.optimizer.parameters(), max_norm);
      const auto norm = sharded.optimizer.clip_grad_norm(max_norm);
      if (!torch::allclose(norm, expected, 1e-6, 0)) {
        throw Error(
            lockstep::str("norm ", norm.item<double>(), ", expected ", expected.item<double>()));
      }
      plain.optimizer.step();
      sharded.optimizer.step();
      require_same(*sharded.net, *plain.net, 2e-6, lockstep::str("step ", step));
    }
  });
}

// Nobody writes a parameter before all ranks have come to step(): a slower one may still read them.
TEST_P(Zero, ParametersStayUntilAllRanksStep) {
  run([](ProcessGroup group) {
    Sharded sharded(group, GetParam().memory, SgdOptions{.lr = 0.5});
    for (int step = 0; step < 3; ++step) {
      sharded.optimizer.zero_grad();
      sharded.backward(batch_of(group.rank(), step));
      sharded.optimizer.clip_grad_norm(1e9);
      const auto before = sharded.net->parameters()[0].detach().clone();
      const auto until = Clock::now() + Milliseconds(group.rank() == group.size() - 1 ? 30 : 0);
      while (Clock::now() < until) {
      }
      if (!torch::equal(before, sharded.net->parameters()[0])) throw Error("changed before this rank's step()");
      sharded.optimizer.step();
      if (torch::equal(before, sharded.net->parameters()[0])) throw Error("not changed by step()");
    }
  });
}

// Rank 1 alone finds an infinity; nobody steps.
TEST_P(Zero, SkipsAStepWithTheOthers) {
  run([](ProcessGroup group) {
    Sharded sharded(group, GetParam().memory, SgdOptions{.lr = 0.1});
    const ZeroNet before = make_zero_net();
    GradScaler scaler({.init_scale = 4});
    auto x = batch_of(group.rank(), 0);
    if (group.rank() == group.size() - 1) x[0].fill_(std::numeric_limits<float>::infinity());
    (scaler.scale(sharded.ddp.forward(x)[0][0])).backward();
    EXPECT_FALSE(scaler.step(sharded.optimizer));
    scaler.update();
    require_same(*sharded.net, *before, 0, "skipped");
    sharded.optimizer.zero_grad();
    scaler.scale(loss_of(sharded.ddp.forward(batch_of(0, 1)))).backward();
    EXPECT_TRUE(scaler.step(sharded.optimizer));
    EXPECT_FALSE(torch::equal(sharded.net->head->bias, before->head->bias));
  });
}

// As after a step that GradScaler skipped; the module clears, in either way.
TEST_P(Zero, KnowsGradientsThatTheModuleCleared) {
  run([](ProcessGroup group) {
    for (const bool set_to_none : {true, false}) {
      const SgdOptions options{.lr = 0.01, .momentum = 0.9};
      Plain plain(group, options);
      Sharded sharded(group, GetParam().memory, options);
      for (int step = 0; step < 6; ++step) {
        const auto advance = [&](auto& wrapped) {
          wrapped.net->zero_grad(set_to_none);
          wrapped.backward(batch_of(group.rank(), step));
          if (step % 2 == 0) return;
          wrapped.optimizer.step();
        };
        advance(plain);
        advance(sharded);
        if (step % 2 == 0) sharded.optimizer.gradients();
        require_same(*sharded.net, *plain.net, GetParam().tolerance,
                     lockstep::str("step ", step, ", set_to_none ", set_to_none));
      }
    }
  });
}

// The buckets become others after that, and the momentum goes with them.
TEST_P(Zero, StepsBeforeAnythingWasReduced) {
  run([](ProcessGroup group) {
    const SgdOptions options{.lr = 0.01, .momentum = 0.9};
    Plain plain(group, options);
    Sharded sharded(group, GetParam().memory, options);
    const auto train = [](auto& wrapped) {
      {
        const auto guard = wrapped.ddp.no_sync();
        wrapped.step(batch_of(0, 0));
        wrapped.step(batch_of(0, 1));
      }
      for (int step = 2; step < 5; ++step) wrapped.step(batch_of(0, step));
    };
    train(plain);
    train(sharded);
    require_same(*sharded.net, *plain.net, 1e-5, "at the end");
    EXPECT_GT(sharded.ddp.core().reducer()->grad_buckets().front().layout, 0U);
  });
}

// The kernel would divide zero by zero there.
TEST_P(Zero, KeepsThePaddingZeroWithoutEps) {
  run([](ProcessGroup group) {
    const AdamOptions options{.lr = 0.01, .eps = 0, .weight_decay = 0.01};
    Plain plain(group, options);
    Sharded sharded(group, GetParam().memory, options);
    for (int step = 0; step < 3; ++step) {
      plain.step(batch_of(group.rank(), step));
      sharded.step(batch_of(group.rank(), step));
    }
    require_same(*sharded.net, *plain.net, GetParam().tolerance == 0 ? 0 : 1e-3, "at the end");
    for (const GradBucket& bucket : sharded.ddp.core().reducer()->grad_buckets()) {
      EXPECT_TRUE(bucket.flat_parameters.isfinite().all().item<bool>());
    }
  });
}

// Autograd sees nobody write the parameters: the kernel writes a slice of the bucket.
TEST_P(Zero, TellsAutogradThatParametersChanged) {
  run([](ProcessGroup group) {
    Sharded sharded(group, GetParam().memory, SgdOptions{.lr = 0.1});
    sharded.step(batch_of(group.rank(), 0));
    const auto stale = loss_of(sharded.ddp.forward(batch_of(group.rank(), 1)));
    sharded.step(batch_of(group.rank(), 2));
    sharded.optimizer.zero_grad();
    EXPECT_THAT(message_of<c10::Error>([&] { stale.backward(); }),
                HasSubstr("modified by an inplace operation"));
  });
}

// A half beside floats, whose gradients are more than a half can hold. It is used last, so that its
// bucket is the first.
struct MixedImpl : torch::nn::Module {
  torch::Tensor forward() {
    const auto sum = (floats * 1e6).sum();
    return sum + halves.to(torch::kFloat32).sum();
  }
  torch::Tensor floats = register_parameter("floats", torch::ones({8}));
  torch::Tensor halves = register_parameter("halves", torch::ones({8}, torch::kFloat16));
};
TORCH_MODULE(Mixed);

TEST(ZeroClipping, OfSeveralTypesHasTheNormOfTheWidest) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    Mixed net;
    DistributedDataParallel ddp(net, group, {.parameter_memory = kFlat});
    ZeroRedundancyOptimizer optimizer(ddp.core(), *net, SgdOptions{.lr = 1});
    ddp.forward().backward();
    EXPECT_EQ(ddp.core().reducer()->grad_buckets().front().buffer.scalar_type(), torch::kFloat16);
    const auto norm = optimizer.clip_grad_norm(1);
    EXPECT_EQ(norm.scalar_type(), torch::kFloat32);
    EXPECT_NEAR(norm.item<double>(), 1e6 * std::sqrt(8.0), 1);
    optimizer.step();
    EXPECT_NEAR(net->floats[0].item<double>(), 1 - 1 / std::sqrt(8.0), 1e-5);
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Their moments and their counts of steps stay, as those of an optimizer of its own.
TEST_P(Zero, SkipsParametersThatNobodyUses) {
  run([](ProcessGroup group) {
    const AdamWOptions options{.lr = 0.01, .weight_decay = 0.1};
    DdpOptions with_search = ddp_options(ParameterMemory::kAsIs);
    with_search.find_unused_parameters = true;
    ZeroNet plain = make_zero_net();
    DistributedDataParallel plain_ddp(plain, group, with_search);
    Optimizer plain_optimizer(*plain, options);
    with_search.parameter_memory = GetParam().memory;
    ZeroNet net = make_zero_net();
    DistributedDataParallel ddp(net, group, with_search);
    ZeroRedundancyOptimizer optimizer(ddp.core(), *net, options);
    for (int step = 0; step < 9; ++step) {
      const auto x = batch_of(group.rank(), step);
      plain->zero_grad();  // to none
      loss_of(plain_ddp.forward(x, step % 3 == 1)).backward();
      plain_optimizer.step();
      net->zero_grad();
      loss_of(ddp.forward(x, step % 3 == 1)).backward();
      optimizer.step();
      require_same(*net, *plain, GetParam().tolerance, lockstep::str("step ", step));
    }
  });
}

// The last rank has no batch in some steps, as under join.
TEST_P(Zero, StepsWithRanksThatHaveNoBatch) {
  run([](ProcessGroup group) {
    const SgdOptions options{.lr = 0.01, .momentum = 0.9};
    Plain plain(group, options);
    Sharded sharded(group, GetParam().memory, options);
    const bool idles = group.size() > 1 && group.rank() == group.size() - 1;
    const auto step = [&](auto& wrapped, int step) {
      wrapped.optimizer.zero_grad();
      if (idles && step % 2 == 1) {
        wrapped.ddp.core().step_without_backward();
      } else {
        wrapped.backward(batch_of(group.rank(), step));
      }
      wrapped.optimizer.step();
    };
    for (int i = 0; i < 5; ++i) {
      step(plain, i);
      step(sharded, i);
      require_same(*sharded.net, *plain.net, GetParam().tolerance, lockstep::str("step ", i));
    }
  });
}

TEST_P(Zero, LeavesFrozenParametersAlone) {
  run([](ProcessGroup group) {
    const auto frozen = [] {
      ZeroNet net = make_zero_net();
      net->extra->weight.requires_grad_(false);
      return net;
    };
    const SgdOptions options{.lr = 0.01, .weight_decay = 0.1};
    Plain plain(group, options, frozen());
    Sharded sharded(group, GetParam().memory, options, frozen());
    for (int step = 0; step < 3; ++step) {
      plain.step(batch_of(group.rank(), step));
      sharded.step(batch_of(group.rank(), step));
    }
    require_same(*sharded.net, *plain.net, GetParam().tolerance, "at the end");
    EXPECT_TRUE(torch::equal(sharded.net->extra->weight, make_zero_net()->extra->weight));
  });
}

// --- The state -----------------------------------------------------------------------------------

// All ranks compute with one batch, so that runs with any number of ranks are alike.
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

// After 5 of 10 steps with two ranks, and after all.
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
      // Before a backward, after which the buckets will be others.
      const int root = group.size() - 1;
      sharded.optimizer.load_state_dict(group.rank() == root ? saved.state : NamedTensors{}, root);
      train_alike(sharded, 5, 10);
      const ZeroNet expected = make_zero_net();
      set_parameters(expected, end);
      require_same(*sharded.net, *expected, 1e-5, "at the end");
      // And once more, in the middle of a run. Parameters may be everybody's.
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
    const double whole = 2.0 * 4 * (2 * 300 * 200 + 500);  // two moments of each parameter
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
      {[](NamedTensors& state) {
         state.front().second = torch::ones({2, 3});
       },
       "is Float [2, 3], expected Float ["},
      {[](NamedTensors& state) { state.front().second = torch::Tensor(); },
       "is undefined, expected Float ["},
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

// Groups cut a rank's slice of a bucket into pieces.
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
      // Either takes over the other's state, and one without groups, too.
      const NamedTensors state = optimizer.state_dict();
      optimizer.load_state_dict(state);
      if (group.rank() != 0) continue;
      EXPECT_EQ(state.size(), plain_optimizer.state().size());
      EXPECT_EQ(state.size(), Optimizer(*plain, options).state().size());
    }
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
      {"parameter group 1 remembers [momentum_buffer], group 0 []",
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
      EXPECT_THAT(message_of<ConfigError>([&] { ZeroRedundancyOptimizer(ddp.core(), *net, groups); }),
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

// The first has left this rank's slices with the mean and the others with its own gradients.
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

// As torch::load() and a change of the memory format do it; on all ranks or on one.
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

}  // namespace
}  // namespace lockstep
