// Strategy dp: replicas on threads of one process, compared with one replica.
#include <lockstep/train/trainer.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;

StrategyOptions two_cpus(DpLoss loss) {
  return {.devices = {torch::Device(torch::kCPU), torch::Device(torch::kCPU)}, .dp_loss = loss};
}

// With batches of 15, the last batch of an epoch has five images, which the replicas share as three
// and two.
constexpr std::int64_t kUnevenBatch = 15;

Outcome train_dp(const TrainerOptions& trainer_options, DpLoss loss = DpLoss::kGathered,
                 std::int64_t global_batch = kUnevenBatch) {
  return train(trainer_options, group_of_one(), /*dropout=*/false, "dp", global_batch,
               two_cpus(loss));
}

Outcome train_single(const TrainerOptions& trainer_options,
                     std::int64_t global_batch = kUnevenBatch) {
  return train(trainer_options, group_of_one(), /*dropout=*/false, "single", global_batch);
}

double largest_difference(const StateDict& a, const StateDict& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i].second - b[i].second).abs().max().item<double>());
  }
  return largest;
}

class TrainerDp : public testing::TestWithParam<DpLoss> {};
INSTANTIATE_TEST_SUITE_P(Losses, TrainerDp, testing::Values(DpLoss::kGathered, DpLoss::kOnEach),
                         [](const auto& info) {
                           return info.param == DpLoss::kGathered ? "gathered" : "on_each";
                         });

TEST_P(TrainerDp, TrainsAsOneReplica) {
  const Outcome dp = train_dp(options(2), GetParam());
  const Outcome single = train_single(options(2));
  EXPECT_LE(largest_difference(dp.state, single.state), 1e-5);
  EXPECT_NEAR(dp.report.epochs[0].train_loss, single.report.epochs[0].train_loss, 1e-5);
  EXPECT_NEAR(dp.report.test->loss, single.report.test->loss, 1e-5);
  EXPECT_EQ(dp.report.test->samples, 33);
  EXPECT_EQ(dp.report.info.strategy, "dp");
  EXPECT_EQ(dp.report.info.devices, 2);
  EXPECT_EQ(dp.report.info.dp_loss, to_string(GetParam()));
  EXPECT_GT(dp.report.epochs[0].phases.forward, 0);
  EXPECT_GT(dp.report.epochs[0].phases.backward, 0);
}

TEST_P(TrainerDp, AccumulatesGradients) {
  TrainerOptions two = options(1);
  two.accumulate_grad_batches = 2;
  const Outcome dp = train_dp(two, GetParam(), kGlobalBatch / 2);
  EXPECT_LE(largest_difference(dp.state, train_single(options(1), kGlobalBatch).state), 1e-5);
}

TEST_P(TrainerDp, ClipsGradientsByTheirNorm) {
  TrainerOptions clipped = options(1);
  clipped.optimizer = SgdOptions{.lr = 0.5};
  clipped.schedule = {};
  clipped.gradient_clip_norm = 0.01;
  clipped.max_steps = 1;
  clipped.limit_val_batches = 0;
  EXPECT_NEAR(distance(train_dp(clipped, GetParam()).state, initial_state()), 0.5 * 0.01, 1e-5);
}

// The division of rows changes the 16-bit rounding, but not the course of training.
TEST_P(TrainerDp, TrainsInSixteenBits) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    TrainerOptions half = options(1);
    half.precision = precision;
    half.grad_scaler = {.init_scale = 1024};
    const StateDict single = train_single(half).state;
    const double trained = distance(single, initial_state());
    EXPECT_GT(trained, 1e-3) << to_string(precision);
    EXPECT_LT(distance(train_dp(half, GetParam()).state, single), 0.1 * trained)
        << to_string(precision);
  }
}

TEST_P(TrainerDp, InFloat16SkipsTheStepsThatOverflow) {
  TrainerOptions half = options(1);
  half.precision = Precision::kFp16;
  half.grad_scaler = {.init_scale = 1e12, .backoff_factor = 1e-9};
  half.limit_val_batches = 0;
  half.max_steps = 1;
  expect_equal_bits(train_dp(half, GetParam()).state, initial_state());
  half.max_steps = 2;
  EXPECT_GT(distance(train_dp(half, GetParam()).state, initial_state()), 1e-3);
}

// Linear layers with a batch normalisation whose running statistics are those of the last batch
// alone.
struct NormedNetImpl : torch::nn::Cloneable<NormedNetImpl> {
  NormedNetImpl() { NormedNetImpl::reset(); }
  void reset() override {
    hidden = register_module("hidden", torch::nn::Linear(28 * 28, 8));
    norm = register_module("norm",
                           torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(8).momentum(1.0)));
    output = register_module("output", torch::nn::Linear(8, 10));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return output->forward(norm->forward(hidden->forward(images.flatten(1))).relu());
  }
  torch::nn::Linear hidden{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(NormedNet);

// Expects the running statistics of the first `samples` of the first batch.
void expect_statistics_of_first(std::int64_t samples, const StrategyOptions& strategy_options) {
  Batch first;
  Loader again = train_loader(group_of_one());
  again.set_epoch(0);
  ASSERT_TRUE(again.next(first));
  NormedNet net;
  const torch::Tensor part = first.images.narrow(0, 0, samples).flatten(1);
  const torch::Tensor expected = net->hidden->forward(part).mean(0).detach();

  ClassificationTask task(net, ClassificationLoss::kCrossEntropy);
  Loader loader = train_loader(group_of_one());
  TrainerOptions one = options(1);
  one.max_steps = 1;
  Trainer(one, make_strategy("dp", group_of_one(), strategy_options)).fit(task, loader);
  EXPECT_TRUE(net->norm->running_mean.allclose(expected, 1e-4, 1e-5)) << samples;
}

TEST(TrainerDpBuffers, AreThoseOfTheFirstReplicasPart) {
  StrategyOptions shared = two_cpus(DpLoss::kGathered);
  expect_statistics_of_first(kGlobalBatch / 2, shared);
  shared.device_weights = {3, 1};
  expect_statistics_of_first(kGlobalBatch * 3 / 4, shared);
}

TEST_P(TrainerDp, RepeatsItsDropoutWhereItIsDeterministic) {
  TrainerOptions run = options(2);
  run.deterministic = true;
  run.accumulate_grad_batches = 2;
  const auto state = [&](bool dropout) {
    return train(run, group_of_one(), dropout, "dp", kUnevenBatch, two_cpus(GetParam())).state;
  };
  const StateDict first = state(true);
  for (int again = 0; again < 4; ++again) expect_equal_bits(state(true), first);
  EXPECT_GT(distance(first, state(false)), 1e-4);
}

// The random numbers of a step depend on nothing that the run did before it.
TEST_P(TrainerDp, GoesOnExactlyWhereItIsDeterministic) {
  const testing_support::TemporaryDirectory directory;
  TrainerOptions run = options(2);
  run.deterministic = true;
  run.accumulate_grad_batches = 2;  // four steps per epoch
  const auto train_it = [&] {
    return train(run, group_of_one(), /*dropout=*/true, "dp", kUnevenBatch, two_cpus(GetParam()))
        .state;
  };
  const StateDict whole = train_it();
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = 6;
  train_it();
  run.max_steps.reset();
  run.resume = true;
  expect_equal_bits(train_it(), whole);
}

// A classifier that applies dropout only from training forward `first` on. Forwards are counted
// from 0 over all replicas.
struct LateDropoutNetImpl : torch::nn::Cloneable<LateDropoutNetImpl> {
  explicit LateDropoutNetImpl(int first_)
      : first(first_), forwards(std::make_shared<std::atomic<int>>(0)) {
    LateDropoutNetImpl::reset();
  }
  void reset() override { linear = register_module("linear", torch::nn::Linear(28 * 28, 10)); }
  torch::Tensor forward(const torch::Tensor& images) {
    const bool draws = is_training() && (*forwards)++ >= first;
    return linear->forward(torch::dropout(images.flatten(1), 0.5, draws));
  }
  int first;
  std::shared_ptr<std::atomic<int>> forwards;  // shared by the replicas
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(LateDropoutNet);

// With two replicas, the third step begins with forward 4.
TEST_P(TrainerDp, RefusesToBeDeterministicWhereAModuleDrawsLate) {
  const auto train_with_dropout_from = [&](int forward, bool deterministic) {
    ClassificationTask task(LateDropoutNet(forward), ClassificationLoss::kCrossEntropy);
    TrainerOptions run = options(1);
    run.deterministic = deterministic;
    Loader loader = train_loader(group_of_one());
    Trainer(run, make_strategy("dp", group_of_one(), two_cpus(GetParam()))).fit(task, loader);
  };
  EXPECT_THAT(message_of<ConfigError>([&] { train_with_dropout_from(4, true); }),
              AllOf(HasSubstr("strategy dp: the module drew random numbers"),
                    HasSubstr("not draw in its first forward")));
  EXPECT_NO_THROW(train_with_dropout_from(4, false));
  EXPECT_NO_THROW(train_with_dropout_from(0, true));
}

// A classifier that draws random numbers in evaluations only.
struct EvaluationDropoutNetImpl : torch::nn::Cloneable<EvaluationDropoutNetImpl> {
  EvaluationDropoutNetImpl() { EvaluationDropoutNetImpl::reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(28 * 28, 10)); }
  torch::Tensor forward(const torch::Tensor& images) {
    return linear->forward(torch::dropout(images.flatten(1), 0.5, !is_training()));
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(EvaluationDropoutNet);

// Evaluations change no weights, so their random numbers do not matter.
TEST_P(TrainerDp, IsDeterministicWhereAModuleDrawsInEvaluations) {
  EvaluationDropoutNet net;
  ClassificationTask task(net, ClassificationLoss::kCrossEntropy);
  TrainerOptions run = options(2);
  run.deterministic = true;
  Loader loader = train_loader(group_of_one());
  RunReport report;
  EXPECT_NO_THROW(report = Trainer(run, make_strategy("dp", group_of_one(), two_cpus(GetParam())))
                               .fit(task, loader, [] { return test_loader(group_of_one()); }));
  ASSERT_EQ(report.epochs.size(), 2U);
  ASSERT_TRUE(report.epochs[0].test);
  EXPECT_EQ(report.epochs[0].test->samples, 33);
}

// A run that is resumed with other weights does not repeat the original, and warns about it.
TEST(TrainerDpWeights, ArePartOfTheRunsRecord) {
  StrategyOptions shared = two_cpus(DpLoss::kGathered);
  const auto equal = make_strategy("dp", group_of_one(), shared);
  EXPECT_EQ(equal->batch_parts(), "2 replicas");
  shared.device_weights = {3, 0.5};
  const auto weighted = make_strategy("dp", group_of_one(), shared);
  EXPECT_EQ(weighted->batch_parts(), "2 replicas by weights 3, 0.5");
  RunInfo info;
  weighted->describe(info);
  EXPECT_EQ(info.device_weights, shared.device_weights);
  EXPECT_EQ(info.devices, 2);
  const auto alone = make_strategy("dp", group_of_one(), {.devices = {torch::kCPU}});
  EXPECT_EQ(alone->batch_parts(), "whole");
}

TEST(TrainerDpRefusals, NameTheStrategy) {
  const auto errors = testing_support::run_group(2, "shm", [](ProcessGroup group) {
    make_strategy("dp", group, two_cpus(DpLoss::kGathered));
  });
  EXPECT_THAT(errors,
              testing::Each(HasSubstr("strategy dp trains in one process, but there are 2")));

  EXPECT_EQ(message_of<ConfigError>(
                [] { make_strategy("dp", group_of_one(), {.sync_batchnorm = true}); }),
            "strategy dp: sync_batchnorm belongs to ddp and zero1");
  EXPECT_EQ(
      message_of<ConfigError>([] { make_strategy("dp", group_of_one(), {.bucket_cap_mb = 1}); }),
      "strategy dp: bucket_cap_mb belongs to ddp and zero1");
  ClassificationTask digits(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  Loader images = train_loader(group_of_one());
  Trainer elsewhere(options(1),
                    make_strategy("dp", group_of_one(), {.devices = {torch::Device("cuda:0")}}));
  EXPECT_EQ(message_of<ConfigError>([&] { elsewhere.fit(digits, images); }),
            "strategy dp: the run's device is cpu, but the first replica is on cuda:0; set "
            "TrainerOptions::device to cuda:0");

  // A task that is not an OutputTask: it does not define the loss of an output.
  class OwnTask final : public Task {
   public:
    torch::nn::Module& module() override { return *net_; }
    torch::Tensor training_step(const Batch& batch) override {
      return net_->forward(batch.images).mean();
    }
    void evaluation_step(const Batch&, MetricSums&) override {}

   private:
    MnistNet net_;
  };
  const auto fit = [](Task& task) {
    Loader loader = train_loader(group_of_one());
    Trainer(options(1), make_strategy("dp", group_of_one(), two_cpus(DpLoss::kGathered)))
        .fit(task, loader);
  };
  OwnTask own;
  EXPECT_THAT(message_of<ConfigError>([&] { fit(own); }),
              AllOf(HasSubstr("strategy dp"), HasSubstr("OutputTask")));

  struct FixedImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& images) {
      return linear->forward(images.flatten(1));
    }
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(28 * 28, 10));
  };
  ClassificationTask fixed(torch::nn::ModuleHolder<FixedImpl>(std::make_shared<FixedImpl>()),
                           ClassificationLoss::kCrossEntropy);
  EXPECT_THAT(message_of<ConfigError>([&] { fit(fixed); }), HasSubstr("cannot be cloned"));
  EXPECT_THROW(parse_dp_loss("each"), ConfigError);

  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  StrategyOptions three = two_cpus(DpLoss::kGathered);
  three.device_weights = {3, 1, 1};
  const auto strategy = make_strategy("dp", group_of_one(), three);
  strategy->place(task.module(), torch::kCPU);
  EXPECT_EQ(message_of<ConfigError>([&] { strategy->attach(task, {}); }),
            "DataParallel: weights must have a number for each of the 2 devices, got 3");
}

TEST(TrainerDpReplicas, AreAsManyAsThereAreProcessorsUpToEight) {
  MnistNet net;
  const auto strategy = make_strategy("dp", group_of_one(), {});
  strategy->place(*net, torch::kCPU);
  EXPECT_EQ(strategy->devices().size(), std::clamp<std::size_t>(available_cpus().size(), 1, 8));
}

}  // namespace
}  // namespace lockstep::train
