// Trainer runs for the tests: a small net on generated digits.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/synthetic_digits.h>
#include <lockstep/data/samplers/sampler.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/train/checkpoints/state_dict.h>
#include <lockstep/train/trainer.h>
#include <tests/support/groups.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::train {

inline constexpr std::int64_t kGlobalBatch = 20;
inline constexpr std::int64_t kImages = 110;  // six steps per epoch: five full batches, one of ten

inline const ImageDataset& train_images() {
  static const ImageDataset images = make_synthetic_digits(Split::kTrain, {.count = kImages});
  return images;
}

inline const ImageDataset& test_images() {
  static const ImageDataset images = make_synthetic_digits(Split::kTest, {.count = 33});
  return images;
}

inline const Augmentation kNormalize = {Normalize{{0.13}, {0.31}}};

inline Loader train_loader(const ProcessGroup& group, std::int64_t global_batch = kGlobalBatch) {
  return Loader(train_images(),
                DistributedSampler(kImages, {.rank = group.rank(), .world_size = group.size()}),
                kNormalize, {.batch_size = global_batch / group.size()});
}

inline std::unique_ptr<Loader> test_loader(const ProcessGroup& group) {
  return std::make_unique<Loader>(
      test_images(), EvaluationSampler(test_images().size(), group.rank(), group.size()),
      kNormalize, LoaderOptions{.batch_size = 8});
}

inline TrainerOptions options(std::int64_t epochs) {
  return {.max_epochs = epochs,
          .optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9},
          .schedule = {.kind = ScheduleKind::kCosine},
          .seed = 5,
          .info = {.recipe = "digits", .global_batch = kGlobalBatch}};
}

struct Outcome {
  RunReport report;
  StateDict state;
  StateDict averaged{};  // set with ema_decay
};

// A process can join the group of its environment only once, but a test trains several times.
inline ProcessGroup group_of_one() {
  return init_process_group({.environment = WorkerEnvironment{}});
}

// Always has the same initial weights, as nets of ranks do with one seed.
inline MnistNet make_digits_net(bool dropout) {
  MnistNet net(MnistNetOptions{.dropout = dropout});
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    const auto size = parameter.numel();
    parameter.copy_((torch::arange(size).mul(0.7).sin() / std::sqrt(size / parameter.size(0) + 1.0))
                        .view_as(parameter));
  }
  return net;
}

inline Outcome train(const TrainerOptions& trainer_options, ProcessGroup group = group_of_one(),
                     bool dropout = true, std::string strategy = "",
                     std::int64_t global_batch = kGlobalBatch,
                     const StrategyOptions& strategy_options = {}) {
  MnistNet net = make_digits_net(dropout);
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  Loader loader = train_loader(group, global_batch);
  if (strategy.empty()) strategy = group.size() == 1 ? "single" : "ddp";
  Trainer trainer(trainer_options, make_strategy(strategy, group, strategy_options));
  Outcome outcome{trainer.fit(task, loader, [&] { return test_loader(group); }), {}, {}};
  for (const auto& [name, tensor] : state_dict(*net)) {
    outcome.state.emplace_back(name, tensor.clone());
  }
  outcome.averaged = trainer.averaged_state();
  return outcome;
}

/// Expects equal values, except for the order of additions over the few steps of these runs.
inline void expect_close(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i].second, b[i].second, 1e-3, 1e-5)) << a[i].first;
  }
}

inline void expect_equal_bits(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
}

/// Expects that a run which ends after `steps` and is resumed has the bits of an uninterrupted one.
/// `state_of` trains.
inline void expect_equal_bits_after_resume(
    TrainerOptions run, std::int64_t steps,
    const std::function<StateDict(const TrainerOptions&)>& state_of =
        [](const TrainerOptions& options) { return train(options).state; }) {
  const testing_support::TemporaryDirectory directory;
  const StateDict whole = state_of(run);
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = steps;
  state_of(run);
  run.max_steps.reset();
  run.resume = true;
  expect_equal_bits(state_of(run), whole);
}

struct CountingListener : Listener {
  void on_run_begin(const RunInfo& info) override {
    events += "b";
    announced_rate = info.learning_rate;
  }
  void on_step(const StepReport& report) override {
    events += "s";
    if (steps_until_failure-- == 0) throw Error("the listener failed");
    last = report;
    rates.push_back(report.learning_rate);
  }
  void on_evaluation(const EvaluationReport& report) override {
    events += "v";
    evaluations.push_back(report);
  }
  void on_epoch_end(const EpochReport&) override { events += "e"; }
  void on_run_end(const RunReport&) override { events += "E"; }

  int steps_until_failure = -1;
  double announced_rate = 0;
  std::string events;
  StepReport last;
  std::vector<double> rates;  // the learning rate of each step
  std::vector<EvaluationReport> evaluations;
};

inline double distance(const StateDict& a, const StateDict& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i].second - b[i].second).square().sum().item<double>();
  }
  return std::sqrt(sum);
}

inline StateDict after_steps(TrainerOptions trainer_options, std::int64_t steps) {
  trainer_options.max_steps = steps;
  trainer_options.limit_val_batches = 0;
  return train(trainer_options, group_of_one(), /*dropout=*/false).state;
}

inline StateDict initial_state() {
  TrainerOptions still = options(1);
  still.optimizer = SgdOptions{.lr = 0};
  return after_steps(still, 1);
}

// Rank 0's outcome.
inline Outcome train_ranks(int size, const std::string& backend, const std::string& strategy,
                           const TrainerOptions& trainer_options,
                           std::int64_t global_batch = kGlobalBatch) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  const auto errors = testing_support::run_group(size, backend, [&](ProcessGroup group) {
    at::set_num_threads(1);
    outcomes[group.rank()] =
        train(trainer_options, group, /*dropout=*/false, strategy, global_batch);
  });
  EXPECT_EQ(errors, testing_support::no_errors(size));
  for (const Outcome& outcome : outcomes) expect_equal_bits(outcome.state, outcomes[0].state);
  return outcomes[0];
}

}  // namespace lockstep::train
