// The communication hooks that keep state between steps, PowerSGD and post-local SGD, with ranks as
// threads, on hand-made buckets.
#include <lockstep/parallel/comm_hooks/post_local_sgd.h>
#include <lockstep/parallel/comm_hooks/power_sgd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/parallel/comm_hooks/default_hooks.h>
#include <lockstep/parallel/ddp/phased_work.h>
#include <tests/parallel/ddp/comm_hook_cases.h>
#include <tests/support/groups.h>

namespace lockstep::parallel {
namespace {

using testing_support::CommHooks;
using testing_support::expect_error;
using testing_support::gradient_of;
using testing_support::mean_of;
using testing_support::Model;
using testing_support::no_errors;
using testing_support::random_like;
using testing_support::relative_error;
using testing_support::run_group;
using testing_support::Shapes;
using torch::Tensor;

// --- PowerSGD ------------------------------------------------------------------------------------

// The training of one rank: copies each step's gradients into buckets, runs the hook, and returns
// the results by parameter.
class Training {
 public:
  Training(ProcessGroup group, PowerSgd& power_sgd, Model& model)
      : group_(std::move(group)), hook_(power_sgd.hook()), model_(model) {}

  void arrange(const std::vector<std::vector<std::size_t>>& members) {
    members_ = members;
    buckets_.clear();
    ++layout_;
    for (std::size_t i = 0; i < members.size(); ++i)
      buckets_.push_back(model_.bucket(group_, members[i], i, layout_));
  }
  std::vector<Tensor> step(
      const std::function<Tensor(const Tensor& like, std::size_t place)>& gradient) {
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (std::size_t i = 0; i < members_[b].size(); ++i) {
        buckets_[b].gradients[i].copy_(gradient(buckets_[b].gradients[i], members_[b][i]));
      }
      works.push_back(hook_(buckets_[b]));
    }
    detail::wait_for_all(works);
    std::vector<Tensor> results(model_.parameters().size());
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (std::size_t i = 0; i < members_[b].size(); ++i) {
        results[members_[b][i]] = buckets_[b].gradients[i].clone();
      }
    }
    return results;
  }
  std::vector<Tensor> random_step(int step_number) {
    return step([&](const Tensor& like, std::size_t place) {
      return gradient_of(like, place, step_number, group_.rank());
    });
  }

 private:
  ProcessGroup group_;
  CommHook hook_;
  Model& model_;
  std::vector<std::vector<std::size_t>> members_;
  std::vector<GradBucket> buckets_;
  std::uint64_t layout_ = 0;
};

// Two matrices of one shape, a convolution in channels_last, and a vector, which is sent
// uncompressed.
const Shapes kShapes = {{20, 30}, {8, 6, 3, 3}, {20, 30}, {11}};
const PowerSgdOptions kAtOnce{.start_power_sgd_iter = 0};

TEST_P(CommHooks, PowerSgdSendsWhatHasLowRankExactly) {
  run([](ProcessGroup group, int rank) {
    struct Setting {
      std::int64_t rank;
      double epsilon;
      bool batch;
    };
    for (const auto& [approximation, epsilon, batch] :
         {Setting{1, 0, false}, Setting{1, 1e-8, true}, Setting{3, 0, true}}) {
      for (const auto type : {torch::kFloat32, torch::kFloat64}) {
        PowerSgd power_sgd(group, {.matrix_approximation_rank = approximation,
                                   .start_power_sgd_iter = 0,
                                   .min_compression_rate = 1,
                                   .orthogonalization_epsilon = epsilon,
                                   .batch_tensors_with_same_shape = batch});
        Model model(kShapes, type);
        Training training(group, power_sgd, model);
        training.arrange({{3, 2}, {1, 0}});
        for (int step = 0; step < 2; ++step) {
          const auto low_rank = [&](const Tensor& like, std::size_t place, int of_rank) {
            const Tensor rows = random_like(like.flatten(1).narrow(1, 0, 1), place + 1);
            const Tensor columns = random_like(like.flatten(1).narrow(0, 0, 1), place + 7);
            return (rows * columns * (1 + of_rank + step)).view(like.sizes());
          };
          const auto results = training.step([&](const Tensor& like, std::size_t place) {
            return place == 3 ? torch::full_like(like, rank) : low_rank(like, place, rank);
          });
          for (std::size_t i = 0; i < 3; ++i) {
            Tensor mean = torch::zeros_like(results[i]);
            for (int of = 0; of < group.size(); ++of)
              mean += low_rank(results[i], i, of) / group.size();
            EXPECT_LT(relative_error(results[i], mean),
                      epsilon == 0 && type == torch::kFloat64 ? 1e-13 : 3e-6)
                << "rank " << approximation << " parameter " << i << " step " << step;
          }
          EXPECT_TRUE(results[3].eq((group.size() - 1) / 2.0).all().item<bool>());
        }
      }
    }
  });
}

// The error that the results lack is what the ranks keep: nothing is lost.
TEST_P(CommHooks, PowerSgdKeepsTheErrorForTheNextStep) {
  run([](ProcessGroup group, int) {
    PowerSgd power_sgd(group, kAtOnce);
    Model model(kShapes);
    Training training(group, power_sgd, model);
    training.arrange({{3, 2, 1, 0}});
    std::vector<Tensor> sent(4), wanted(4);
    for (int step = 0; step < 4; ++step) {
      const auto results = training.random_step(step);
      for (std::size_t i = 0; i < 4; ++i) {
        const Tensor mean = mean_of(results[i], i, step, group.size());
        sent[i] = sent[i].defined() ? sent[i] + results[i] : results[i].to(torch::kFloat64);
        wanted[i] = wanted[i].defined() ? wanted[i] + mean : mean;
        Tensor first = results[i].clone();
        group.broadcast(first);
        EXPECT_TRUE(torch::equal(first, results[i])) << "ranks differ";
      }
      EXPECT_GT(relative_error(sent[0], wanted[0]), 0.1) << "rank 1 cannot send it all";
    }
    for (auto& [name, error] : power_sgd.state_dict(model)) {
      if (!name.starts_with("error.p")) continue;
      const std::size_t i = name.back() - '0';
      group.all_reduce(error, ReduceOp::kAverage);
      // The error is in memory order, which has the channels last.
      const Tensor of_shape = i == 1 ? error.view({8, 3, 3, 6}).permute({0, 3, 1, 2}) : error;
      sent[i] += of_shape;
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_LT(relative_error(sent[i], wanted[i]), 1e-6) << i;
  });
}

// With a warm start, power iteration converges to the best approximation of a constant gradient.
// With a random Q in each step it does not.
TEST(PowerSgd, WarmStartApproachesTheBestApproximation) {
  for (const bool warm : {true, false}) {
    EXPECT_EQ(run_group(2, "shm",
                        [&](ProcessGroup group) {
                          PowerSgd power_sgd(group, {.matrix_approximation_rank = 2,
                                                     .start_power_sgd_iter = 0,
                                                     .use_error_feedback = false,
                                                     .warm_start = warm});
                          Model model(Shapes{{20, 30}});
                          Training training(group, power_sgd, model);
                          training.arrange({{0}});
                          Tensor result;
                          for (int step = 0; step < 40; ++step) result = training.random_step(0)[0];
                          const Tensor mean = mean_of(result, 0, 0, 2);
                          const Tensor values = at::linalg_svdvals(mean);
                          const double best = values.slice(0, 2).norm().item<double>();
                          const double reached = (mean - result).norm().item<double>();
                          if (warm) {
                            EXPECT_LT(reached, 1.001 * best);
                          } else {
                            EXPECT_GT(reached, 1.01 * best);
                          }
                        }),
              no_errors(2));
  }
}

TEST(PowerSgd, StartsAfterTheGivenStepsAndCounts) {
  EXPECT_EQ(
      run_group(2, "shm",
                [](ProcessGroup group) {
                  PowerSgd power_sgd(group, {.start_power_sgd_iter = 2});
                  Model model(Shapes{{20, 30}, {5}});
                  Training training(group, power_sgd, model);
                  training.arrange({{1}, {0}});
                  for (int step = 0; step < 4; ++step) {
                    EXPECT_EQ(power_sgd.statistics().iterations, step);
                    const auto results = training.random_step(step);
                    const bool exact =
                        relative_error(results[0], mean_of(results[0], 0, step, 2)) < 1e-6;
                    EXPECT_EQ(exact, step < 2) << step;
                    EXPECT_LT(relative_error(results[1], mean_of(results[1], 1, step, 2)), 1e-6)
                        << "a vector";
                    EXPECT_EQ(power_sgd.statistics().elements_before_compression,
                              std::max(0, step - 1) * 605);
                    EXPECT_EQ(power_sgd.statistics().elements_after_compression,
                              std::max(0, step - 1) * 55);
                  }
                  EXPECT_DOUBLE_EQ(power_sgd.statistics().compression_rate(), 11);
                }),
      no_errors(2));
}

// The second half uses different buckets than the first.
TEST_P(CommHooks, PowerSgdGoesOnAfterARestartAndARebuild) {
  run([](ProcessGroup group, int) {
    for (const bool warm : {true, false}) {
      const PowerSgdOptions options{
          .matrix_approximation_rank = 2, .start_power_sgd_iter = 1, .warm_start = warm};
      Model model(kShapes);
      PowerSgd first(group, options), second(group, options);
      Training training(group, first, model), resumed(group, second, model);
      training.arrange({{3, 2}, {1, 0}});
      for (int step = 0; step < 3; ++step) training.random_step(step);
      const auto state = first.state_dict(model);
      second.load_state_dict(model, state);
      EXPECT_EQ(second.statistics().iterations, 3);
      // With a random Q in each step, the bucket layout decides which numbers each matrix gets.
      const std::vector<std::vector<std::size_t>> rebuilt = {{0, 1, 2}, {3}};
      training.arrange(rebuilt);
      resumed.arrange(rebuilt);
      for (int step = 3; step < 5; ++step) {
        const auto expected = training.random_step(step), got = resumed.random_step(step);
        for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(torch::equal(got[i], expected[i])) << i;
      }
      if (!warm) continue;
      PowerSgd whole(group, options);
      Training unchanged(group, whole, model);
      unchanged.arrange({{3, 2}, {1, 0}});
      for (int step = 0; step < 5; ++step) {
        const auto expected = unchanged.random_step(step);
        if (step != 4) continue;
        const auto again = first.state_dict(model), here = whole.state_dict(model);
        ASSERT_EQ(again.size(), 2 + 2 * 3);
        for (std::size_t i = 0; i < again.size(); ++i) {
          EXPECT_EQ(again[i].first, here[i].first);
          // Over Gloo, the order of additions depends on the position in the buffer.
          EXPECT_LT(relative_error(again[i].second, here[i].second), 1e-4)
              << again[i].first << ": the rebuild lost it";
        }
      }
    }
  });
}

// A gradient of zero, as of an unused layer, makes Q zero. Q must recover from this and must not
// become NaN.
TEST(PowerSgd, RecoversFromZeroAndFromInfinity) {
  for (const double epsilon : {0.0, 1e-8}) {
    EXPECT_EQ(
        run_group(
            2, "shm",
            [&](ProcessGroup group) {
              PowerSgd power_sgd(group,
                                 {.start_power_sgd_iter = 0, .orthogonalization_epsilon = epsilon});
              Model model(Shapes{{20, 30}});
              Training training(group, power_sgd, model);
              training.arrange({{0}});
              const auto ones = [](double value) {
                return [value](const Tensor& like, std::size_t) {
                  return torch::full_like(like, value);
                };
              };
              EXPECT_TRUE(training.step(ones(0))[0].eq(0).all().item<bool>());
              EXPECT_LT(relative_error(training.step(ones(2))[0], torch::full({20, 30}, 2)), 1e-6);
              const double infinite =
                  group.rank() == 1 ? std::numeric_limits<double>::infinity() : 2.0;
              EXPECT_TRUE(training.step(ones(infinite))[0].isnan().all().item<bool>())
                  << "seen on both ranks";
              EXPECT_LT(relative_error(training.step(ones(2))[0], torch::full({20, 30}, 2)), 1e-6);
            }),
        no_errors(2));
  }
}

// M and P fit into float16, but Q overflows on rank 0 only. All ranks must start with a new Q.
TEST(PowerSgd, RecoversFromAQThatOverflows) {
  enum class Then { kGoesOn, kIsRebuilt, kIsResumed };
  for (const Then then : {Then::kGoesOn, Then::kIsRebuilt, Then::kIsResumed}) {
    const auto body = [then](ProcessGroup group) {
      PowerSgd power_sgd(group, kAtOnce), other(group, kAtOnce);
      Model model(Shapes{{64, 64}}, torch::kFloat16);
      Training training(group, power_sgd, model), resumed(group, other, model);
      training.arrange({{0}});
      const auto filled = [](Training& with, double value) {
        return with.step(
            [value](const Tensor& like, std::size_t) { return torch::full_like(like, value); })[0];
      };
      EXPECT_TRUE(filled(training, group.rank() == 0 ? 20000 : 2).isnan().all().item<bool>());
      const auto state = power_sgd.state_dict(model);
      EXPECT_EQ(state.size(), 3) << "iteration, seeds and error, but no Q";
      if (then == Then::kIsRebuilt) training.arrange({{0}});
      if (then == Then::kIsResumed) {
        other.load_state_dict(model, state);
        resumed.arrange({{0}});
      }
      for (int step = 0; step < 2; ++step) {
        const Tensor result = filled(then == Then::kIsResumed ? resumed : training, 2);
        EXPECT_LT(relative_error(result, torch::full({64, 64}, 2)), 3e-3)
            << static_cast<int>(then) << " step " << step;
      }
    };
    EXPECT_EQ(run_group(2, "shm", body), no_errors(2));
  }
}

TEST(PowerSgd, CompressesInsideOfACastAndWithoutErrorFeedback) {
  EXPECT_EQ(
      run_group(2, "shm",
                [](ProcessGroup group) {
                  PowerSgd power_sgd(group, {.start_power_sgd_iter = 0,
                                             .use_error_feedback = false,
                                             .batch_tensors_with_same_shape = true});
                  const CommHook hook = fp16_compress_wrapper(group, power_sgd.hook());
                  Model model(Shapes{{20, 30}, {20, 30}});
                  GradBucket bucket = model.bucket(group, {0, 1});
                  bucket.gradients[0].fill_(1 + group.rank());
                  bucket.gradients[1].fill_(-3);
                  hook(bucket)->wait();
                  EXPECT_LT(relative_error(bucket.gradients[0], torch::full({20, 30}, 1.5)), 3e-3);
                  EXPECT_LT(relative_error(bucket.gradients[1], torch::full({20, 30}, -3)), 3e-3);
                }),
      no_errors(2));
}

TEST(CommHooksErrors, SayWhatCannotBe) {
  EXPECT_EQ(
      run_group(
          1, "auto",
          [](ProcessGroup group) {
            for (const auto& [options, text] : std::vector<std::pair<PowerSgdOptions, std::string>>{
                     {{.matrix_approximation_rank = 0},
                      "matrix_approximation_rank must be at least 1, got 0"},
                     {{.start_power_sgd_iter = -1},
                      "start_power_sgd_iter must be at least 0, got -1"},
                     {{.min_compression_rate = 0}, "min_compression_rate must be above 0, got 0"},
                     {{.orthogonalization_epsilon = -1},
                      "orthogonalization_epsilon must be at least 0, got -1"}}) {
              expect_error<ConfigError>([&, &options = options] { PowerSgd(group, options); },
                                        text);
            }
            expect_error<ConfigError>([&] { post_local_sgd_hook(group, std::nullopt, -1); },
                                      "got -1");
            expect_error<ConfigError>([&] { PeriodicModelAverager(group, {}, {.period = 0}); },
                                      "got 0, 0 and 0");
            expect_error<ConfigError>(
                [&] { PeriodicModelAverager(group, {}, {.warmup_steps = -1}); }, "got 1, -1 and 0");
            expect_error<ConfigError>([&] { PeriodicModelAverager(group, {}, {.first_step = -1}); },
                                      "got 1, 0 and -1");

            const Model model(Shapes{{20, 30}});
            PowerSgd power_sgd(group);
            const auto one = torch::tensor(std::int64_t{1});
            const PowerSgd::NamedTensors good = {{"iteration", one}, {"seeds_drawn", one}};
            for (const auto& [name, shape, text] :
                 std::vector<std::tuple<std::string, std::vector<std::int64_t>, std::string>>{
                     {"q.p0", {20, 1}, "'q.p0' has shape [20, 1], expected [30, 1]"},
                     {"error.p0", {600}, "'error.p0' has shape [600], expected [20, 30]"},
                     {"q.p1", {30, 1}, "'q.p1', which is not a parameter of the module"},
                     {"p0", {20, 30}, "'p0', which is not a parameter of the module"}}) {
              auto state = good;
              state.emplace_back(name, torch::zeros(shape));
              expect_error<CheckpointError>([&] { power_sgd.load_state_dict(model, state); }, text);
            }
            expect_error<CheckpointError>([&] { power_sgd.load_state_dict(model, {good[0]}); },
                                          "no 'seeds_drawn'");
            EXPECT_EQ(power_sgd.statistics().iterations, 0) << "nothing was changed";
          }),
      no_errors(1));
}

// Matrices of such parameters have one row, or no elements. They are sent as they are, beside a
// compressed one.
TEST(PowerSgd, TakesParametersWithoutDimensionsAndEmptyOnes) {
  const auto body = [](ProcessGroup group) {
    PowerSgd power_sgd(group, kAtOnce);
    Model model(Shapes{{}, {0, 3}, {20, 30}, {3, 0}});
    Training training(group, power_sgd, model);
    training.arrange({{0, 1, 2, 3}});
    for (int step = 0; step < 2; ++step) {
      const auto results = training.random_step(step);
      EXPECT_LT(relative_error(results[0], mean_of(results[0], 0, step, 2)), 1e-5) << step;
      EXPECT_EQ(results[1].sizes().vec(), (std::vector<std::int64_t>{0, 3}));
    }
    EXPECT_EQ(power_sgd.statistics().elements_before_compression, 2 * 601);
    EXPECT_EQ(power_sgd.statistics().elements_after_compression, 2 * 51);
    EXPECT_EQ(power_sgd.state_dict(model).size(), 4U) << "iteration, seeds, one Q and one error";
  };
  EXPECT_EQ(run_group(2, "shm", body), no_errors(2));
}

TEST(PowerSgd, RefusesAStateThatIsUndefinedOrOfSeveralNumbers) {
  const auto body = [](ProcessGroup group) {
    PowerSgd power_sgd(group);
    const Model model(Shapes{{2, 3}});
    const PowerSgd::NamedTensors good = {{"iteration", torch::tensor(std::int64_t{5})},
                                         {"seeds_drawn", torch::tensor(std::int64_t{1})},
                                         {"q.p0", torch::ones({3, 1})},
                                         {"error.p0", torch::ones({2, 3})}};
    for (std::size_t i = 0; i < good.size(); ++i) {
      PowerSgd::NamedTensors state = good;
      state[i].second = Tensor();
      expect_error<CheckpointError>([&] { power_sgd.load_state_dict(model, state); },
                                    "'" + good[i].first + "' is undefined");
      state[i].second = torch::ones({2}, torch::kInt64);
      expect_error<CheckpointError>([&] { power_sgd.load_state_dict(model, state); },
                                    "'" + good[i].first + "' has shape [2], expected ");
      EXPECT_EQ(power_sgd.statistics().iterations, 0) << "nothing was changed";
    }
    power_sgd.load_state_dict(model, good);
    EXPECT_EQ(power_sgd.statistics().iterations, 5);
    EXPECT_EQ(power_sgd.statistics().compression_rate(), 0) << "nothing was compressed yet";
  };
  EXPECT_EQ(run_group(1, "auto", body), no_errors(1));
}

// Q has no more columns than the matrix has rows or columns, whatever rank is asked for.
TEST(PowerSgd, LoadsAQOfASmallMatrix) {
  const auto body = [](ProcessGroup group) {
    PowerSgd power_sgd(group, {.matrix_approximation_rank = 4});
    const Model model(Shapes{{2, 3, 5}});
    const auto load = [&](std::vector<std::int64_t> shape) {
      power_sgd.load_state_dict(model, {{"iteration", torch::tensor(std::int64_t{5})},
                                        {"seeds_drawn", torch::tensor(std::int64_t{1})},
                                        {"q.p0", torch::ones(shape)}});
    };
    expect_error<CheckpointError>([&] { load({15, 4}); },
                                  "'q.p0' has shape [15, 4], expected [15, 2]");
    EXPECT_EQ(power_sgd.statistics().iterations, 0);
    load({15, 2});
    EXPECT_EQ(power_sgd.statistics().iterations, 5);
    expect_error<CheckpointError>(
        [&] { power_sgd.load_state_dict(model, {{"seeds_drawn", torch::tensor(1)}}); },
        "no 'iteration'");
  };
  EXPECT_EQ(run_group(1, "auto", body), no_errors(1));
}

// --- Post-local SGD ------------------------------------------------------------------------------

TEST(PostLocalSgd, AveragesGloballyThenInsideOfSubgroupsThenNotAtAll) {
  for (const std::string backend : {"shm", "gloo"}) {
    EXPECT_EQ(run_group(4, backend,
                        [](ProcessGroup group) {
                          const int rank = group.rank();
                          const auto pair = group.split(rank / 2);
                          const CommHook with_pair = post_local_sgd_hook(group, pair, 2);
                          const CommHook alone = post_local_sgd_hook(group, std::nullopt, 1);
                          Model model(Shapes{{3}, {4}});
                          std::vector<GradBucket> buckets = {model.bucket(group, {1}, 0),
                                                             model.bucket(group, {0}, 1)};
                          const double of_pair = rank / 2 * 2 + 0.5;
                          for (int step = 0; step < 3; ++step) {
                            for (const auto& [hook, expected] :
                                 {std::pair(with_pair, step < 2 ? 1.5 : of_pair),
                                  std::pair(alone, step < 1 ? 1.5 : rank)}) {
                              for (GradBucket& bucket : buckets) {
                                bucket.buffer.fill_(rank);
                                hook(bucket)->wait();
                                EXPECT_TRUE(bucket.gradients[0].eq(expected).all().item<bool>())
                                    << "step " << step;
                              }
                            }
                          }
                        }),
              no_errors(4));
  }
}

TEST(PostLocalSgd, AveragesParametersEveryPeriod) {
  EXPECT_EQ(run_group(2, "shm",
                      [](ProcessGroup group) {
                        torch::nn::Module module;
                        module.register_parameter("a", torch::zeros({3}));
                        module.register_parameter("b", torch::zeros({2, 2}, torch::kFloat64));
                        module.register_parameter("frozen", torch::zeros({2}),
                                                  /*requires_grad=*/false);
                        PeriodicModelAverager averager(group, module.parameters(),
                                                       {.period = 2, .warmup_steps = 1});
                        PeriodicModelAverager resumed(
                            group, {}, {.period = 2, .warmup_steps = 1, .first_step = 3});
                        for (int step = 0; step < 5; ++step) {
                          const torch::NoGradGuard no_grad;
                          for (auto& parameter : module.parameters())
                            parameter.fill_(group.rank() + step);
                          const bool averages = step == 1 || step == 3;
                          EXPECT_EQ(averager.average_parameters(), averages);
                          for (const auto& item : module.named_parameters()) {
                            const double expected =
                                step + (averages && item.key() != "frozen" ? 0.5 : group.rank());
                            EXPECT_TRUE(item.value().eq(expected).all().item<bool>())
                                << item.key() << " step " << step;
                          }
                        }
                        EXPECT_TRUE(resumed.average_parameters());
                        EXPECT_EQ(resumed.step(), 4);
                      }),
            no_errors(2));
}

// Module::parameters() lists a tied weight once per name.
TEST(PostLocalSgd, AveragesATiedParameterOnce) {
  EXPECT_EQ(run_group(2, "shm",
                      [](ProcessGroup group) {
                        const Tensor tied = torch::full({3}, group.rank() * 2.0).requires_grad_();
                        PeriodicModelAverager averager(group, {tied, tied}, {});
                        EXPECT_EQ(averager.step(), 0);
                        EXPECT_TRUE(averager.average_parameters());
                        EXPECT_TRUE(averager.average_parameters()) << "by default in every step";
                        EXPECT_TRUE(tied.eq(1).all().item<bool>());
                      }),
            no_errors(2));
}

TEST(PostLocalSgd, AveragesParametersOfEveryLayout) {
  const auto body = [](ProcessGroup group) {
    const double rank = group.rank();
    const Tensor memory = torch::full({4, 6}, rank);
    const std::vector<Tensor> parameters = {
        torch::full({3, 2}, rank).t().requires_grad_(),
        memory.detach().narrow(1, 1, 3).requires_grad_(),  // has gaps
        torch::full({}, rank + 1, torch::kFloat64).requires_grad_(),
        torch::full({5}, 2 * rank, torch::kBFloat16).requires_grad_(),
        torch::empty({0, 2}).requires_grad_()};
    PeriodicModelAverager averager(group, parameters, {});
    EXPECT_TRUE(averager.average_parameters());
    EXPECT_TRUE(parameters[0].eq(0.5).all().item<bool>());
    EXPECT_TRUE(parameters[1].eq(0.5).all().item<bool>());
    EXPECT_EQ(parameters[2].item<double>(), 1.5);
    EXPECT_TRUE(parameters[3].eq(1).all().item<bool>());
    EXPECT_TRUE(memory.select(1, 0).eq(rank).all().item<bool>()) << "in a gap";
    EXPECT_TRUE(memory.narrow(1, 4, 2).eq(rank).all().item<bool>()) << "in a gap";
  };
  for (const char* backend : {"shm", "gloo"}) {
    EXPECT_EQ(run_group(2, backend, body), no_errors(2)) << backend;
  }
}

}  // namespace
}  // namespace lockstep::parallel
