// Strategies pipeline and hybrid with a weight that several stages share, on threads and on ranks.
#include <lockstep/train/trainer.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <latch>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/pipeline/balance.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::Each;
using testing::StartsWith;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;
using testing_support::TemporaryDirectory;

// A net with these third and last layers, always with the same weights.
torch::nn::Sequential net_with_layers(const torch::nn::Linear& third,
                                      const torch::nn::Linear& last) {
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(28 * 28, 16));
  net->push_back(third);
  net->push_back(torch::nn::Tanh());
  net->push_back(last);
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : net->parameters()) {
    const auto size = static_cast<double>(parameter.numel());
    parameter.copy_((torch::arange(parameter.numel()).mul(0.7).sin() /
                     std::sqrt(size / static_cast<double>(parameter.size(0)) + 1.0))
                        .view_as(parameter));
  }
  return net;
}

// A net whose third and last layer are the same.
torch::nn::Sequential make_net_with_tie(bool frozen_tie = false) {
  const torch::nn::Linear shared(16, 16);
  torch::nn::Sequential net = net_with_layers(shared, shared);
  for (const torch::Tensor& parameter : shared->parameters()) {
    parameter.set_requires_grad(!frozen_tie);
  }
  return net;
}

// A net whose third and last layer are the same normalisation, with running statistics.
torch::nn::Sequential make_net_with_shared_norm() {
  const torch::nn::BatchNorm1d shared(16);
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(28 * 28, 16));
  net->push_back(shared);
  net->push_back(torch::nn::Tanh());
  net->push_back(shared);
  return net;
}

// Two stages that both contain the shared layer. The second one may skip it.
ClassificationTask task_with_tie(const torch::nn::Sequential& net, bool uses_second_copy = true) {
  return ClassificationTask(net, ClassificationLoss::kCrossEntropy, [net, uses_second_copy](int) {
    auto stages = pipeline::stage_modules(split(net, {3, 2}));
    if (uses_second_copy) return stages;
    stages[1] =
        pipeline::StageModule(stages[1].module().shared_from_this(),
                              [](const Tensors& inputs) -> Tensors { return {inputs[0].tanh()}; });
    return stages;
  });
}

// The variations of the net in a run.
struct TiedModel {
  bool frozen_tie = false;
  bool uses_second_copy = true;
  bool overflows = false;  // the gradient of the first layer, which only the first stage contains
};

struct TiedWay {
  const char* name;
  const char* strategy;
  int ranks;
  Schedule schedule = Schedule::k1F1B;
  bool shards = false;
  const char* backend = "shm";
  std::int64_t global_batch = kGlobalBatch;
};

void PrintTo(const TiedWay& way, std::ostream* out) { *out << way.name; }

const TiedWay kTiedSingle = {"single", "single", 1};

// With zbv, one rank has both stages.
std::vector<TiedWay> tied_ways() {
  return {{"threads", "pipeline", 1},
          {"ranks", "pipeline", 2},
          {"hybrid", "hybrid", 4},
          {"hybridZbv", "hybrid", 2, Schedule::kZbV},
          {"hybridSharded", "hybrid", 4, Schedule::k1F1B, true},
          {"hybridShardedGloo", "hybrid", 4, Schedule::k1F1B, true, "gloo"},
          {"hybridShardedZbv", "hybrid", 2, Schedule::kZbV, true}};
}

Loader loader_of(const DataShare& share, std::int64_t global_batch) {
  return Loader(train_images(),
                DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
                kNormalize, {.batch_size = global_batch / share.size});
}

// Runs one rank's part of a run. Sets `weights` to the distinct weights that the rank then has: the
// two of the first layer, and the two tied ones.
RunReport fit_with_tie(const TiedWay& way, const TrainerOptions& trainer_options,
                       const ProcessGroup& group, const TiedModel& model, Tensors& weights) {
  const torch::nn::Sequential net = make_net_with_tie(model.frozen_tie);
  if (model.overflows) {
    net->parameters().front().register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
      return torch::full_like(gradient, std::numeric_limits<double>::infinity());
    });
  }
  ClassificationTask task = task_with_tie(net, model.uses_second_copy);
  auto strategy = make_strategy(
      way.strategy, group, {.stages = 2, .schedule = way.schedule, .shard_optimizer = way.shards});
  const DataShare share = strategy->data_share();
  Loader loader = loader_of(share, way.global_batch / trainer_options.accumulate_grad_batches);
  RunReport report = Trainer(trainer_options, std::move(strategy)).fit(task, loader, [&] {
    return std::make_unique<Loader>(test_images(),
                                    EvaluationSampler(test_images().size(), share.rank, share.size),
                                    kNormalize, LoaderOptions{.batch_size = 8});
  });
  for (const torch::Tensor& weight : optim::distinct(net->parameters())) {
    weights.push_back(weight.detach().clone());
  }
  return report;
}

// Every rank has a copy of the tied weights, which are the last two.
void expect_equal_copies(const std::vector<Tensors>& weights_of_ranks, const char* name) {
  const Tensors& first = weights_of_ranks.front();
  for (std::size_t rank = 0; rank < weights_of_ranks.size(); ++rank) {
    const Tensors& weights = weights_of_ranks[rank];
    ASSERT_EQ(weights.size(), 4U) << name << ", rank " << rank;
    EXPECT_TRUE(weights[2].equal(first[2])) << name << ", rank " << rank;
    EXPECT_TRUE(weights[3].equal(first[3])) << name << ", rank " << rank;
  }
}

// The results of a run: rank 0's report, each distinct tensor in its checkpoint, and the weights on
// each rank.
struct TiedOutcome {
  RunReport report{};
  Tensors weights{};
  StateDict training{};
  std::vector<Tensors> weights_of_ranks{};
};

TiedOutcome train_with_tie(const TiedWay& way, TrainerOptions trainer_options,
                           const std::filesystem::path& checkpoint, const TiedModel& model = {}) {
  trainer_options.checkpoints.directory = checkpoint;
  TiedOutcome outcome;
  outcome.weights_of_ranks.resize(static_cast<std::size_t>(way.ranks));
  const auto train_rank = [&](const ProcessGroup& group) {
    at::set_num_threads(1);
    Tensors& weights = outcome.weights_of_ranks[static_cast<std::size_t>(group.rank())];
    RunReport report = fit_with_tie(way, trainer_options, group, model, weights);
    if (group.rank() == 0) outcome.report = std::move(report);
  };
  if (way.ranks == 1) {
    train_rank(group_of_one());
  } else {
    EXPECT_EQ(run_group(way.ranks, way.backend, train_rank), no_errors(way.ranks)) << way.name;
  }
  expect_equal_copies(outcome.weights_of_ranks, way.name);
  torch::nn::Sequential net = make_net_with_tie(model.frozen_tie);
  outcome.training = Optimizer(*net, trainer_options.optimizer).state();
  load_checkpoint(checkpoint, *net, outcome.training, "digits");
  outcome.weights = optim::distinct(net->parameters());
  return outcome;
}

TiedOutcome train_with_tie(const TiedWay& way, const TrainerOptions& trainer_options,
                           const TiedModel& model = {}) {
  const TemporaryDirectory directory;
  return train_with_tie(way, trainer_options, directory / "checkpoints", model);
}

double greatest_gap(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.detach().to(torch::kFloat64) - b.detach().to(torch::kFloat64))
      .abs()
      .max()
      .item<double>();
}

double greatest_gap(const TiedOutcome& a, const TiedOutcome& b) {
  EXPECT_EQ(a.weights.size(), 4U);
  EXPECT_EQ(b.weights.size(), 4U);
  EXPECT_EQ(a.training.size(), b.training.size());
  double greatest = 0;
  for (std::size_t i = 0; i < std::min(a.weights.size(), b.weights.size()); ++i) {
    greatest = std::max(greatest, greatest_gap(a.weights[i], b.weights[i]));
  }
  for (std::size_t i = 0; i < std::min(a.training.size(), b.training.size()); ++i) {
    EXPECT_EQ(a.training[i].first, b.training[i].first);
    greatest = std::max(greatest, greatest_gap(a.training[i].second, b.training[i].second));
  }
  return greatest;
}

double length_of_difference(const Tensors& a, const Tensors& b) {
  double squares = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    squares += (a[i] - b[i]).detach().square().sum().item<double>();
  }
  return std::sqrt(squares);
}

Tensors untrained_with_tie() { return optim::distinct(make_net_with_tie()->parameters()); }

class TrainerTies : public testing::TestWithParam<TiedWay> {};
INSTANTIATE_TEST_SUITE_P(Ways, TrainerTies, testing::ValuesIn(tied_ways()),
                         [](const auto& info) { return std::string(info.param.name); });

// Each step accumulates two batches, whose gradients must be summed over the copies only once.
TEST_P(TrainerTies, TrainAsOneProcess) {
  TrainerOptions adamw = options(1);
  adamw.optimizer = AdamWOptions{.lr = 1e-3, .eps = 1e-3};
  const TiedOutcome single = train_with_tie(kTiedSingle, adamw);
  EXPECT_GT(length_of_difference(single.weights, untrained_with_tie()), 1e-3);
  adamw.accumulate_grad_batches = 2;
  const TiedOutcome outcome = train_with_tie(GetParam(), adamw);
  EXPECT_LE(greatest_gap(outcome, single), 1e-5);
  ASSERT_EQ(outcome.report.epochs.size(), 1U);
  EXPECT_NEAR(outcome.report.epochs[0].train_loss, single.report.epochs[0].train_loss, 1e-5);
  EXPECT_NEAR(outcome.report.test->loss, single.report.test->loss, 1e-5);
  EXPECT_EQ(outcome.report.info.parameters, single.report.info.parameters);
}

// If the weight were counted in both of its stages, the norm would be too large and the steps too
// short.
TEST_P(TrainerTies, CountOnceInTheNormThatClips) {
  TrainerOptions clipped = options(1);
  clipped.optimizer = SgdOptions{.lr = 0.5};
  clipped.schedule = {};
  clipped.gradient_clip_norm = 0.01;
  clipped.limit_val_batches = 0;
  const TiedOutcome single = train_with_tie(kTiedSingle, clipped);
  EXPECT_GT(length_of_difference(single.weights, untrained_with_tie()), 0.01);
  EXPECT_LE(greatest_gap(train_with_tie(GetParam(), clipped), single), 1e-5);
  clipped.max_steps = 1;
  const TiedOutcome step = train_with_tie(GetParam(), clipped);
  EXPECT_NEAR(length_of_difference(step.weights, untrained_with_tie()), 0.5 * 0.01, 1e-5);
}

TEST_P(TrainerTies, GoOnExactly) {
  const TemporaryDirectory directory;
  TrainerOptions run = options(1);
  run.optimizer = AdamOptions{.amsgrad = true};
  const TiedOutcome whole = train_with_tie(GetParam(), run);
  run.max_steps = 3;
  train_with_tie(GetParam(), run, directory / "checkpoints");
  run.max_steps.reset();
  run.resume = true;
  const TiedOutcome resumed = train_with_tie(GetParam(), run, directory / "checkpoints");
  EXPECT_EQ(greatest_gap(resumed, whole), 0);
  EXPECT_EQ(resumed.report.test->loss, whole.report.test->loss);
}

TrainerOptions in_scaled_float16() {
  TrainerOptions half = options(1);
  half.optimizer = SgdOptions{.lr = 0.05};
  half.schedule = {};
  half.precision = Precision::kFp16;
  half.grad_scaler = {.init_scale = 1024};
  half.limit_val_batches = 0;
  return half;
}

// Only the first stage overflows. If the ranks did not agree, the second stage's rank would step
// its copy.
TEST_P(TrainerTies, SkipStepsInFloat16Together) {
  TrainerOptions half = in_scaled_float16();
  half.max_steps = 1;
  const TiedOutcome stepped = train_with_tie(GetParam(), half);
  const TiedOutcome skipped = train_with_tie(GetParam(), half, TiedModel{.overflows = true});
  for (const Tensors& weights : stepped.weights_of_ranks) {
    EXPECT_GT(length_of_difference(weights, untrained_with_tie()), 0);
  }
  for (const Tensors& weights : skipped.weights_of_ranks) {
    EXPECT_EQ(length_of_difference(weights, untrained_with_tie()), 0);
  }
}

// A gradient that is divided by the scale twice or never would change its weight too little or too
// much.
TEST_P(TrainerTies, UnscaleGradientsOnceInFloat16) {
  const Tensors untrained = untrained_with_tie();
  const TiedOutcome single = train_with_tie(kTiedSingle, in_scaled_float16());
  const TiedOutcome outcome = train_with_tie(GetParam(), in_scaled_float16());
  for (std::size_t i = 0; i < untrained.size(); ++i) {
    const double trained = length_of_difference({single.weights.at(i)}, {untrained[i]});
    EXPECT_GT(trained, 1e-4) << i;
    EXPECT_LT(length_of_difference({outcome.weights.at(i)}, {single.weights[i]}), 0.1 * trained)
        << i;
  }
}

// Over Gloo, the order in which three gradients are added depends on their position in a bucket,
// which differs between copies. Only whole batches are compared with one process.
TEST(TrainerTiesOfThreeReplicas, TrainAsOneProcessOverGloo) {
  const TiedWay hybrid = {"threeReplicas", "hybrid", 6, Schedule::k1F1B, false, "gloo", 18};
  TiedWay single = kTiedSingle;
  single.global_batch = 18;
  TrainerOptions run = options(1);
  run.max_steps = 4;
  run.limit_val_batches = 0;
  EXPECT_LE(greatest_gap(train_with_tie(hybrid, run), train_with_tie(single, run)), 1e-5);
}

// The second stage's copy has no gradient of its own.
TEST(TrainerUnusedCopies, GetTheGradientOfTheOthers) {
  const TiedModel model = {.uses_second_copy = false};
  const TiedOutcome threads = train_with_tie({"threads", "pipeline", 1}, options(1), model);
  const std::vector<TiedWay> ways = {{"ranks", "pipeline", 2},
                                     {"hybrid", "hybrid", 4},
                                     {"sharded", "hybrid", 4, Schedule::k1F1B, true}};
  for (const TiedWay& way : ways) {
    EXPECT_LE(greatest_gap(train_with_tie(way, options(1), model), threads), 1e-5) << way.name;
  }
}

// A checkpoint has the format of a single process, wherever the copies were.
TEST(TrainerTiedCheckpoints, GoOnAtAnotherSplit) {
  const TiedWay ranks = {"ranks", "pipeline", 2};
  const TiedWay sharded = {"sharded", "hybrid", 4, Schedule::k1F1B, true};
  TrainerOptions run = options(1);
  run.schedule = {};
  run.optimizer = AdamWOptions{.lr = 1e-3, .eps = 1e-3};
  const TiedOutcome whole = train_with_tie(kTiedSingle, run);
  const std::vector<std::pair<TiedWay, TiedWay>> ways = {
      {ranks, kTiedSingle}, {kTiedSingle, sharded}, {sharded, ranks}};
  for (const auto& [first, second] : ways) {
    const TemporaryDirectory directory;
    TrainerOptions part = run;
    part.max_steps = 3;
    train_with_tie(first, part, directory / "checkpoints");
    part.max_steps.reset();
    part.resume = true;
    const TiedOutcome resumed = train_with_tie(second, part, directory / "checkpoints");
    EXPECT_LE(greatest_gap(resumed, whole), 1e-5) << first.name << " to " << second.name;
  }
}

// There are no gradients to add, and the second stage trains nothing at all.
TEST(TrainerFrozenTies, TrainAsOneProcess) {
  const TiedOutcome single = train_with_tie(kTiedSingle, options(1), TiedModel{.frozen_tie = true});
  for (const TiedWay& way : {TiedWay{"ranks", "pipeline", 2}, TiedWay{"hybrid", "hybrid", 4}}) {
    const TiedOutcome outcome = train_with_tie(way, options(1), TiedModel{.frozen_tie = true});
    EXPECT_LE(greatest_gap(outcome, single), 1e-5) << way.name;
  }
}

// The second rank has nothing but a copy, which the first rank's weight must not be replaced by.
TEST(TrainerTiedModules, GetTheWeightOfTheFirstRankThatHasIt) {
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    at::set_num_threads(1);
    torch::nn::Sequential net = make_net_with_tie();
    ClassificationTask task = task_with_tie(net);
    const auto strategy = make_strategy("pipeline", group, {.stages = 2});
    strategy->place(*net, torch::kCPU);
    strategy->attach(task, {.device = torch::kCPU});
    {
      const torch::NoGradGuard no_grad;
      for (const torch::Tensor& weight : net->parameters()) weight.fill_(group.rank() + 1);
    }
    strategy->gather_module();
    if (group.rank() == 0) {
      for (const auto& weight : net->named_parameters()) {
        EXPECT_TRUE(weight.value().equal(torch::ones_like(weight.value()))) << weight.key();
      }
    }
    group.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Trains a net without ties. The strategy has trained a net with ties before, where the last rank's
// stage had the weights of layer 2 as a copy of another rank's. Now that stage alone has them.
StateDict trained_without_tie(const TiedWay& way, bool after_a_tie) {
  StateDict state;
  const auto train_rank = [&](const ProcessGroup& group) {
    at::set_num_threads(1);
    ClassificationTask tied = task_with_tie(make_net_with_tie());
    const torch::nn::Sequential net =
        net_with_layers(torch::nn::Linear(16, 16), torch::nn::Linear(16, 16));
    ClassificationTask task(net, ClassificationLoss::kCrossEntropy,
                            [net](int) { return pipeline::stage_modules(split(net, {2, 3})); });
    auto strategy =
        make_strategy(way.strategy, group,
                      {.stages = 2, .schedule = way.schedule, .shard_optimizer = way.shards});
    Loader loader = loader_of(strategy->data_share(), kGlobalBatch);
    TrainerOptions clipped = options(1);
    clipped.gradient_clip_norm = 0.5;
    Trainer trainer(clipped, std::move(strategy));
    if (after_a_tie) trainer.fit(tied, loader);
    trainer.fit(task, loader);
    if (group.rank() == 0) state = state_dict(*net);
  };
  if (way.ranks == 1) {
    train_rank(group_of_one());
  } else {
    EXPECT_EQ(run_group(way.ranks, way.backend, train_rank), no_errors(way.ranks)) << way.name;
  }
  return state;
}

TEST(TrainerFormerTies, DoNotOutlastTheirRun) {
  const StateDict single = trained_without_tie(kTiedSingle, /*after_a_tie=*/false);
  for (const TiedWay& way :
       {TiedWay{"threads", "pipeline", 1}, TiedWay{"ranks", "pipeline", 2},
        TiedWay{"hybrid", "hybrid", 4}, TiedWay{"hybridZbv", "hybrid", 2, Schedule::kZbV}}) {
    const StateDict state = trained_without_tie(way, /*after_a_tie=*/true);
    ASSERT_EQ(state.size(), single.size()) << way.name;
    for (std::size_t i = 0; i < state.size(); ++i) {
      EXPECT_LE(greatest_gap(state[i].second, single[i].second), 1e-5)
          << way.name << ' ' << state[i].first;
    }
  }
}

// Each rank would update its own statistics. No rank may abort a group in which another one is
// still making its strategy.
TEST(TrainerSharedStatistics, AreRefusedOnAllRanks) {
  for (const TiedWay& way : {TiedWay{"ranks", "pipeline", 2}, TiedWay{"hybrid", "hybrid", 4}}) {
    std::latch all_made(way.ranks);
    const auto texts = run_group(way.ranks, way.backend, [&](const ProcessGroup& group) {
      ClassificationTask task = task_with_tie(make_net_with_shared_norm());
      auto strategy = make_strategy(way.strategy, group, {.stages = 2});
      Loader loader = loader_of(strategy->data_share(), kGlobalBatch);
      Trainer trainer(options(1), std::move(strategy));
      all_made.arrive_and_wait();
      throw Error(message_of<ConfigError>([&] { trainer.fit(task, loader); }));
    });
    EXPECT_THAT(texts, Each(StartsWith(str("strategy ", way.strategy,
                                           ": stages 0 and 1 are on different ranks and share the "
                                           "buffer '2.running_mean'"))));
  }
}

}  // namespace
}  // namespace lockstep::train
