// ZeroRedundancyOptimizer compared with DistributedDataParallel and a full optimizer on each rank.
#include <lockstep/parallel/zero_redundancy_optimizer.h>

#include <chrono>
#include <cmath>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/grad_scaler.h>
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
using testing_support::ZeroCase;
using testing_support::ZeroNet;

INSTANTIATE_TEST_SUITE_P(Cases, Zero,
                         ::testing::Values(ZeroCase{"shm2", "shm", 2, kFlat, 0},
                                           ZeroCase{"shared3", "shm", 3, kShared, 0},
                                           ZeroCase{"gloo3", "gloo", 3, kFlat, 1e-5},
                                           ZeroCase{"hierarchical3", "hierarchical", 3, kFlat,
                                                    1e-5},
                                           ZeroCase{"one", "auto", 1, kFlat, 0}),
                         [](const auto& info) { return info.param.name; });

class ZeroSteps : public Zero {};
INSTANTIATE_TEST_SUITE_P(
    Cases, ZeroSteps,
    ::testing::Values(
        ZeroCase{"shm2", "shm", 2, kFlat, 0}, ZeroCase{"shm3", "shm", 3, kFlat, 0},
        ZeroCase{"shared2", "shm", 2, kShared, 0}, ZeroCase{"shared3", "shm", 3, kShared, 0},
        ZeroCase{"gloo2", "gloo", 2, kFlat, 0}, ZeroCase{"gloo3", "gloo", 3, kFlat, 1e-5},
        ZeroCase{"hierarchical3", "hierarchical", 3, kFlat, 1e-5},
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
      const double max_norm = step % 2 == 0 ? 0.01 : 100;  // clips in even steps only
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

// No rank writes a parameter before all ranks have called step(), because a slower rank may still
// read it.
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
      if (!torch::equal(before, sharded.net->parameters()[0]))
        throw Error("changed before this rank's step()");
      sharded.optimizer.step();
      if (torch::equal(before, sharded.net->parameters()[0])) throw Error("not changed by step()");
    }
  });
}

// Only rank 1 finds an infinity, but no rank steps.
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

// The device's decisions are those of the host: with a skipped step, a parameter that some steps
// leave out, and steps of the other kind in between.
TEST_P(Zero, SkipsAStepOnTheDeviceAsOnTheHost) {
  run([](ProcessGroup group) {
    if (GetParam().memory == kShared) return;
    DdpOptions with_search = ddp_options(kFlat);
    with_search.find_unused_parameters = true;
    for (const OptimizerOptions& options : all_options()) {
      Sharded host(group, with_search, options);
      Sharded device(group, with_search, options);
      for (int step = 0; step < 9; ++step) {
        torch::Tensor x = batch_of(group.rank(), step);
        if (step == 4 && group.rank() == group.size() - 1) x[0].fill_(std::nan(""));
        const auto backward = [&](Sharded& of) {
          of.net->zero_grad();  // to none
          loss_of(of.ddp.forward(x, /*with_extra=*/step != 2 && step != 6)).backward();
          torch::Tensor found = torch::zeros({1});
          for (const torch::Tensor& gradient : of.optimizer.gradients()) {
            if (!gradient.isfinite().all().item<bool>()) found.fill_(1);
          }
          of.optimizer.reduce_found_inf(found);
          return found;
        };
        const bool skips = backward(host).item<float>() != 0;
        if (skips != (step == 4)) throw Error(lockstep::str("step ", step, " skips: ", skips));
        if (!skips) host.optimizer.step();
        const torch::Tensor found = backward(device);
        step == 7 ? device.optimizer.step() : device.optimizer.step_unless(found);
        require_same(*device.net, *host.net, 0,
                     lockstep::str("optimizer ", options.index(), ", step ", step));
        // Reading the state after step 6 would fetch the counts that step() needs in step 7.
        if (step == 6 || (step < 5 && step % 2 == 0)) continue;
        const NamedTensors expected = host.optimizer.state_dict();
        const NamedTensors state = device.optimizer.state_dict();
        for (std::size_t i = 0; i < expected.size(); ++i) {
          if (state.at(i).second.equal(expected[i].second)) continue;
          throw Error(lockstep::str("step ", step, ": other ", expected[i].first));
        }
      }
    }
  });
}

TEST(ZeroMisuse, ADeviceThatDecidesForSharedParameters) {
  EXPECT_EQ(run_group(1, "auto",
                      [](ProcessGroup group) {
                        Sharded sharded(group, kShared, SgdOptions{.lr = 0.1});
                        sharded.backward(batch_of(0, 0));
                        EXPECT_THAT(message_of<ConfigError>(
                                        [&] { sharded.optimizer.step_unless(torch::zeros({1})); }),
                                    HasSubstr("step_unless: ranks that share parameters decide on "
                                              "the host; use step(), or set"));
                      }),
            no_errors(1));
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

// The buckets are rebuilt afterwards, and the momentum moves with them.
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

// Without eps, the kernel would divide zero by zero in the padding.
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

// Autograd cannot see that parameters are written, because the kernel writes a slice of the bucket.
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

TEST_P(Zero, TellsAutogradOfAStepThatTheDeviceDecides) {
  run([](ProcessGroup group) {
    if (GetParam().memory == kShared) return;
    Sharded sharded(group, GetParam().memory, SgdOptions{.lr = 0.1});
    sharded.step(batch_of(group.rank(), 0));
    const auto stale = loss_of(sharded.ddp.forward(batch_of(group.rank(), 1)));
    sharded.optimizer.zero_grad();
    sharded.backward(batch_of(group.rank(), 2));
    sharded.optimizer.step_unless(torch::zeros({1}));
    sharded.optimizer.zero_grad();
    EXPECT_THAT(message_of<c10::Error>([&] { stale.backward(); }),
                HasSubstr("modified by an inplace operation"));
  });
}

TEST_P(Zero, TellsAutogradThatGradientsWereReduced) {
  run([](ProcessGroup group) {
    Sharded sharded(group, GetParam().memory, SgdOptions{.lr = 0.1});
    sharded.step(batch_of(group.rank(), 0));
    sharded.optimizer.zero_grad();
    const torch::Tensor& gradient = sharded.net->conv->weight.grad();
    const auto before = gradient._version();
    sharded.backward(batch_of(group.rank(), 1));
    const auto after_backward = gradient._version();
    EXPECT_GT(after_backward, before);
    sharded.optimizer.gradients();
    // In memory that the ranks share, it is here that the means are computed.
    EXPECT_EQ(gradient._version() > after_backward, GetParam().memory == kShared);
  });
}

// A float16 parameter beside float32 ones, whose gradients exceed the range of float16. It is used
// last, so that its bucket is the first.
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

// Rank 1 comes late to the all-reduce of the norm, and rank 0 waits for it there.
TEST(ZeroTiming, ClippingCountsItsWaitAsCommunication) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    Mixed net;
    DistributedDataParallel ddp(net, group, {.parameter_memory = kFlat});
    ZeroRedundancyOptimizer optimizer(ddp.core(), *net, SgdOptions{.lr = 1});
    ddp.forward().backward();
    group.barrier();
    const double before = optimizer.communication_seconds();
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    optimizer.clip_grad_norm(1);
    const double waited = optimizer.communication_seconds() - before;
    if (group.rank() == 0) EXPECT_GE(waited, 0.025);
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Their moments and step counts do not change, just as in a separate optimizer.
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
      plain->zero_grad();  // undefined, not zero
      loss_of(plain_ddp.forward(x, step % 3 == 1)).backward();
      plain_optimizer.step();
      net->zero_grad();
      loss_of(ddp.forward(x, step % 3 == 1)).backward();
      optimizer.step();
      require_same(*net, *plain, GetParam().tolerance, lockstep::str("step ", step));
    }
  });
}

// The last rank has no batch in some steps, as with Join.
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

// In memory that the ranks share, the means are computed in one rank's slices of its own gradients.
// A second call must not compute means of means.
TEST_P(Zero, GivesTheSameGradientsAgain) {
  run([](ProcessGroup group) {
    Sharded sharded(group, GetParam().memory, SgdOptions{.lr = 0.1});
    for (int step = 0; step < 2; ++step) {
      sharded.optimizer.zero_grad();
      sharded.backward(batch_of(group.rank(), step));
      Tensors first;
      for (const torch::Tensor& each : sharded.optimizer.gradients()) first.push_back(each.clone());
      const Tensors again = sharded.optimizer.gradients();
      ASSERT_EQ(again.size(), first.size());
      for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(again[i].equal(first[i])) << i;
      sharded.optimizer.step();
    }
  });
}

// The means are computed in a rank's slice of its own gradients, so a second call must not compute
// means of means. Autograd learns of the writes once.
TEST(ZeroGradients, InSharedMemoryAreMeansHoweverOftenTheyAreAskedFor) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    at::set_num_threads(1);  // more would wait for those of the other rank
    const SgdOptions options{.lr = 0.1};
    Plain plain(group, options);
    Sharded sharded(group, kShared, options);
    for (int step = 0; step < 2; ++step) {
      plain.optimizer.zero_grad();
      plain.backward(batch_of(group.rank(), step));
      sharded.optimizer.zero_grad();
      sharded.backward(batch_of(group.rank(), step));
      const torch::Tensor& gradient = sharded.net->conv->weight.grad();
      const auto after_backward = gradient._version();
      Tensors first;
      for (const torch::Tensor& each : sharded.optimizer.gradients()) first.push_back(each.clone());
      const auto reduced = gradient._version();
      EXPECT_GT(reduced, after_backward);
      const Tensors again = sharded.optimizer.gradients();
      EXPECT_EQ(gradient._version(), reduced);
      ASSERT_EQ(again.size(), first.size());
      for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(again[i].equal(first[i])) << i;
      double squares = 0;
      for (const torch::Tensor& each : again) squares += each.square().sum().item<double>();
      const torch::Tensor total = torch::full({1}, squares, torch::kFloat64);
      group.all_reduce(total);
      double expected = 0;
      for (const torch::Tensor& each : plain.net->parameters()) {
        expected += each.grad().square().sum().item<double>();
      }
      EXPECT_NEAR(total.item<double>(), expected, 1e-5 * expected);
      plain.optimizer.step();
      sharded.optimizer.step();
      require_same(*sharded.net, *plain.net, 0, lockstep::str("step ", step));
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The rank's part of a parameter's gradient: all of it with one rank, and with two ranks its
// beginning on the first and the rest on the second.
TEST(ZeroGradients, OfAParameterAreDividedAmongTheRanks) {
  for (const int ranks : {1, 2}) {
    const auto errors = run_group(ranks, ranks == 1 ? "auto" : "shm", [&](ProcessGroup group) {
      Plain plain(group, SgdOptions{.lr = 0.1});
      Sharded sharded(group, kFlat, SgdOptions{.lr = 0.1});
      plain.backward(batch_of(group.rank(), 0));
      sharded.backward(batch_of(group.rank(), 0));
      const std::vector<torch::Tensor> parameters = sharded.net->parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Tensors parts = sharded.optimizer.gradients_of({parameters[i]});
        ASSERT_LE(parts.size(), 1U) << i;
        const torch::Tensor gradient = plain.net->parameters()[i].grad();
        const torch::Tensor expected =
            gradient.as_strided({gradient.numel()}, {1}, gradient.storage_offset());
        const std::int64_t size = parts.empty() ? 0 : parts[0].numel();
        const std::int64_t begin = group.rank() == 0 ? 0 : expected.numel() - size;
        ASSERT_LE(size, expected.numel()) << i;
        if (size > 0) {
          EXPECT_TRUE(torch::allclose(parts[0], expected.narrow(0, begin, size), 1e-5, 1e-7)) << i;
        }
        const torch::Tensor total = torch::full({1}, size, torch::kInt64);
        group.all_reduce(total);
        EXPECT_EQ(total.item<std::int64_t>(), expected.numel()) << i;
      }
      EXPECT_TRUE(sharded.optimizer.gradients_of({}).empty());
      EXPECT_TRUE(sharded.optimizer.gradients_of({torch::ones({3})}).empty());
    });
    EXPECT_EQ(errors, no_errors(ranks));
  }
}

}  // namespace
}  // namespace lockstep
