// What an evaluation may cause: a lower learning rate, or the end of the run.
#include <lockstep/train/task/plateau.h>

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing_support::message_of;
using testing_support::TemporaryDirectory;

// A run that learns nothing, so that all its evaluations are equal.
TrainerOptions standing_still(std::int64_t epochs) {
  TrainerOptions run = options(epochs);
  run.optimizer = SgdOptions{.lr = 0};
  run.limit_train_batches = 1;
  return run;
}

TEST(EarlyStopping, CountsEvaluationsWithoutImprovement) {
  struct Case {
    const char* name;
    EarlyStoppingOptions options;
    std::vector<double> values;
    std::size_t stops_after;  // 0 if it never stops
  };
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const Case cases[] = {
      {"falls", {.patience = 2}, {3, 2, 1, 0}, 0},
      {"rises", {.patience = 2}, {3, 4, 5, 6}, 3},
      {"recovers", {.patience = 2}, {3, 4, 2, 3, 1}, 0},
      {"equal is no improvement", {.patience = 1}, {3, 3}, 2},
      {"too little", {.patience = 2, .min_delta = 0.5}, {3, 2.6, 2.51}, 3},
      {"enough in all", {.patience = 2, .min_delta = 0.5}, {3, 2.6, 2.4}, 0},
      {"an accuracy", {.mode = MetricGoal::kMax, .patience = 2}, {0.1, 0.2, 0.15, 0.2}, 4},
      {"no number", {.patience = 5}, {3, nan}, 2},
      {"no number is only bad", {.patience = 2, .check_finite = false}, {3, nan, nan}, 3},
      {"infinite", {.patience = 5}, {infinity}, 1},
  };
  for (const Case& c : cases) {
    validate(c.options);
    EarlyStopping stopping(c.options);
    std::size_t stopped_after = 0;
    for (std::size_t i = 0; i < c.values.size() && stopped_after == 0; ++i) {
      // A stopper that is resumed after each value continues exactly.
      EarlyStopping resumed(c.options);
      resumed.restore(stopping.state());
      resumed.step(c.values[i]);
      stopping = resumed;
      if (stopping.stopped()) stopped_after = i + 1;
    }
    EXPECT_EQ(stopped_after, c.stops_after) << c.name;
  }
  EXPECT_THROW(validate(EarlyStoppingOptions{.monitor = ""}), ConfigError);
  EXPECT_THROW(validate(EarlyStoppingOptions{.min_delta = -1}), ConfigError);
}

TEST(EarlyStopping, SaysWhatItWaitedFor) {
  EXPECT_EQ(EarlyStoppingOptions().patience, 3);
  EXPECT_EQ(EarlyStoppingOptions().min_delta, 0);
  EarlyStopping stopping({.monitor = "accuracy", .mode = MetricGoal::kMax, .patience = 1});
  for (const double value : {0.25, 0.5, 0.375}) stopping.step(value);
  EXPECT_TRUE(stopping.stopped());
  EXPECT_EQ(stopping.reason(), "accuracy has not improved on 0.5 in 1 evaluation");
  stopping.step(0.5);
  EXPECT_EQ(stopping.reason(), "accuracy has not improved on 0.5 in 2 evaluations");
  stopping.step(std::nan(""));
  EXPECT_EQ(stopping.reason(), "accuracy is nan");
  EarlyStopping patient(
      {.mode = MetricGoal::kMax, .patience = 2, .min_delta = 0.25, .check_finite = false});
  for (const double value : {1.0, 1.25, std::nan("")}) patient.step(value);
  EXPECT_TRUE(patient.stopped()) << "a quarter more is not more than a quarter";
  EXPECT_EQ(patient.reason(), "loss has not improved on 1 in 2 evaluations");
  patient.step(1.5);
  EXPECT_FALSE(patient.stopped());
}

TEST(Plateau, RefusesWhatCannotBe) {
  for (const PlateauOptions& options :
       {PlateauOptions{.monitor = ""}, PlateauOptions{.factor = 1}, PlateauOptions{.factor = 0},
        PlateauOptions{.patience = -1}, PlateauOptions{.threshold = -1},
        PlateauOptions{.cooldown = -1}, PlateauOptions{.min_lr = -1}, PlateauOptions{.eps = -1}}) {
    EXPECT_THROW(validate(options), ConfigError);
  }
  EXPECT_EQ(message_of<ConfigError>([] { validate(PlateauOptions{.monitor = ""}); }),
            "schedule: the metric of a plateau has no name");
  EXPECT_EQ(message_of<ConfigError>([] { validate(PlateauOptions{.factor = 1}); }),
            "schedule: factor must be below 1, got 1");
  EXPECT_NO_THROW(validate(
      PlateauOptions{.patience = 0, .threshold = 0, .cooldown = 0, .min_lr = 0, .eps = 0}));
  EXPECT_EQ(message_of<ConfigError>([] { validate(EarlyStoppingOptions{.monitor = ""}); }),
            "early stopping: the metric has no name");
  PlateauSchedule schedule({}, 1);
  for (const char* state : {"", "1 2 3", "1 2 3 x", "1 2 3 4 5"}) {
    EXPECT_EQ(message_of<CheckpointError>([&] { schedule.restore(state); }),
              str("the checkpoint's state of the schedule is '", state, "', expected 4 numbers"));
  }
  EarlyStopping stopping{EarlyStoppingOptions()};
  for (const char* state : {"", "1 2", "1 2 x", "1,2,3", "1 2 3 4"}) {
    EXPECT_EQ(message_of<CheckpointError>([&] { stopping.restore(state); }),
              str("the checkpoint's state of early stopping is '", state, "', expected 3 numbers"));
  }
  EXPECT_THROW(parse_metric_goal("most"), ConfigError);
  for (const char* goal : {"min", "max"}) EXPECT_EQ(to_string(parse_metric_goal(goal)), goal);
}

TEST(TrainerStops, WhenTheLossNoLongerImproves) {
  CountingListener listener;
  TrainerOptions run = standing_still(9);
  run.early_stopping = EarlyStoppingOptions{.patience = 2};
  run.listeners = {&listener};
  const RunReport report = train(run).report;
  EXPECT_EQ(listener.events,
            "bsesese"
            "E");
  EXPECT_THAT(report.stop_reason, testing::StartsWith("loss has not improved on "));
  EXPECT_THAT(report.stop_reason, testing::EndsWith(" in 2 evaluations"));
  EXPECT_TRUE(report.test);
  run.min_epochs = 5;
  EXPECT_EQ(train(run).report.epochs.size(), 5U);
  run.early_stopping->monitor = "accuracy";
  run.early_stopping->mode = MetricGoal::kMax;
  run.min_epochs = 0;
  EXPECT_EQ(train(run).report.epochs.size(), 3U);
}

TEST(TrainerStops, OnAllRanksAndWhenALossIsNoNumber) {
  TrainerOptions diverging = options(9);
  diverging.optimizer = SgdOptions{.lr = 1e30};
  diverging.early_stopping = EarlyStoppingOptions{.monitor = "train_loss", .patience = 5};
  std::vector<Outcome> outcomes(2);
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    outcomes[static_cast<std::size_t>(group.rank())] = train(diverging, group, false);
  });
  ASSERT_EQ(errors, testing_support::no_errors(2));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.report.epochs.size(), 1U);
    EXPECT_THAT(outcome.report.stop_reason, HasSubstr("train_loss is "));
  }
}

TEST(TrainerStops, InTheMiddleOfAnEpoch) {
  TrainerOptions run = options(9);
  run.optimizer = SgdOptions{.lr = 0};
  run.val_check_interval = 1;
  run.early_stopping = EarlyStoppingOptions{.patience = 2};
  CountingListener listener;
  run.listeners = {&listener};
  train(run);
  EXPECT_EQ(listener.events, "bsvsvsveE");
}

TEST(TrainerStops, StayStoppedUntilThereIsMorePatience) {
  const TemporaryDirectory directory;
  TrainerOptions run = standing_still(9);
  run.early_stopping = EarlyStoppingOptions{.patience = 2};
  run.checkpoints.directory = directory / "checkpoints";
  EXPECT_EQ(train(run).report.epochs.size(), 3U);
  run.resume = true;
  EXPECT_TRUE(train(run).report.already_complete);
  run.early_stopping->patience = 4;
  EXPECT_EQ(train(run).report.epochs.size(), 2U) << "two evaluations were counted before";
}

TEST(TrainerStops, NameAValueThatThereIsNot) {
  CountingListener before;
  TrainerOptions run = standing_still(2);
  run.listeners = {&before};
  run.early_stopping = EarlyStoppingOptions{.monitor = "psnr"};
  EXPECT_EQ(message_of<ConfigError>([&] { train(run); }),
            "TrainerOptions::early_stopping: the evaluation has no value 'psnr'; it has loss, "
            "accuracy, train_loss");
  EXPECT_EQ(before.events, "") << "the run does not begin";
  run.schedule = {.kind = ScheduleKind::kPlateau, .plateau = {.monitor = "acuracy"}};
  EXPECT_THAT(
      message_of<ConfigError>([&] { train(run); }),
      testing::StartsWith("PlateauOptions::monitor: the evaluation has no value 'acuracy'"));
  EXPECT_EQ(before.events, "");
  run.schedule = {};
  run.limit_val_batches = 0;
  CountingListener listener;
  run.listeners = {&listener};
  EXPECT_EQ(message_of<ConfigError>([&] { train(run); }),
            "TrainerOptions::early_stopping: watches 'psnr' of the evaluations, but this run has "
            "none; raise TrainerOptions::limit_val_batches, or watch train_loss");
  EXPECT_EQ(listener.events, "");
  run.early_stopping.reset();
  run.schedule = {.kind = ScheduleKind::kPlateau};
  EXPECT_EQ(message_of<ConfigError>([&] { train(run); }),
            "PlateauOptions::monitor: watches 'loss' of the evaluations, but this run has none; "
            "raise TrainerOptions::limit_val_batches, or watch train_loss");
  TrainerOptions keeping = standing_still(1);
  keeping.limit_val_batches = 0;
  keeping.checkpoints.save_top_k = 1;
  EXPECT_EQ(train(keeping).report.epochs.size(), 1U) << "it keeps no checkpoints";
  const TemporaryDirectory directory;
  keeping.checkpoints.directory = directory / "checkpoints";
  EXPECT_EQ(message_of<ConfigError>([&] { train(keeping); }),
            "CheckpointOptions::save_top_k: watches 'loss' of the evaluations, but this run has "
            "none; raise TrainerOptions::limit_val_batches, or watch train_loss");
  run.schedule.plateau.monitor = "train_loss";
  train(run);
}

// How many batches a run of one step evaluates, of which the evaluation after it has `after`.
int batches_before_training(const TrainerOptions& run, int after) {
  struct CountingTask final : ClassificationTask {
    CountingTask()
        : ClassificationTask(make_digits_net(/*dropout=*/false),
                             ClassificationLoss::kNegativeLogLikelihood) {}
    void evaluation_step(const Batch& batch, Metrics& metrics) override {
      ++evaluated;
      ClassificationTask::evaluation_step(batch, metrics);
    }
    int evaluated = 0;
  };
  CountingTask task;
  Loader loader = train_loader(group_of_one());
  Trainer(run, make_strategy("single", group_of_one())).fit(task, loader, [] {
    return test_loader(group_of_one());
  });
  return task.evaluated - after;
}

// What an evaluation reports is known only after one. One batch is therefore evaluated before the
// training, unless more are asked for.
TEST(TrainerStops, EvaluateBeforeTheTrainingWhatANameNeeds) {
  const TemporaryDirectory directory;
  const TrainerOptions plain = standing_still(1);
  EXPECT_EQ(batches_before_training(plain, 5), 0);
  TrainerOptions stopping = plain;
  stopping.early_stopping = EarlyStoppingOptions{};
  EXPECT_EQ(batches_before_training(stopping, 5), 1) << "a task need not report a loss";
  stopping.early_stopping->monitor = "train_loss";
  EXPECT_EQ(batches_before_training(stopping, 5), 0);
  stopping.early_stopping = EarlyStoppingOptions{.monitor = "accuracy", .mode = MetricGoal::kMax};
  EXPECT_EQ(batches_before_training(stopping, 5), 1);
  stopping.num_sanity_val_steps = 3;
  EXPECT_EQ(batches_before_training(stopping, 5), 3);
  stopping.num_sanity_val_steps = 9;
  stopping.limit_val_batches = 2;
  EXPECT_EQ(batches_before_training(stopping, 2), 2) << "no more than an evaluation";
  TrainerOptions plateau = plain;
  plateau.schedule = {.kind = ScheduleKind::kPlateau, .plateau = {.monitor = "accuracy"}};
  EXPECT_EQ(batches_before_training(plateau, 5), 1);
  plateau.schedule.plateau.monitor = "train_loss";
  EXPECT_EQ(batches_before_training(plateau, 5), 0);
  TrainerOptions keeping = plain;
  keeping.checkpoints.monitor = "accuracy";
  keeping.checkpoints.save_top_k = 1;
  EXPECT_EQ(batches_before_training(keeping, 5), 0) << "it keeps no checkpoints";
  keeping.checkpoints.directory = directory / "checkpoints";
  EXPECT_EQ(batches_before_training(keeping, 5), 1);
  keeping.resume = true;
  EXPECT_EQ(batches_before_training(keeping, 5), 0) << "there is nothing left to train";
}

// A task need not report a loss.
TEST(TrainerStops, FindTheMissingLossBeforeTheTraining) {
  class Lossless : public Task {
   public:
    torch::nn::Module& module() override { return task_.module(); }
    torch::Tensor training_step(const Batch& batch) override { return task_.training_step(batch); }
    void evaluation_step(const Batch& batch, Metrics& metrics) override {
      metrics.add("share", 0.5, batch.size);
    }

   private:
    ClassificationTask task_{MnistNet(), ClassificationLoss::kNegativeLogLikelihood};
  };
  for (const char* owner : {"TrainerOptions::early_stopping", "CheckpointOptions::save_top_k",
                            "PlateauOptions::monitor"}) {
    const TemporaryDirectory directory;
    CountingListener listener;
    TrainerOptions run = standing_still(2);
    run.listeners = {&listener};
    run.checkpoints.directory = directory / "checkpoints";
    const std::string watching = owner;
    if (watching.ends_with("early_stopping")) run.early_stopping = EarlyStoppingOptions{};
    if (watching.ends_with("save_top_k")) run.checkpoints.save_top_k = 1;
    if (watching.ends_with("monitor")) run.schedule = {.kind = ScheduleKind::kPlateau};
    Lossless task;
    Loader loader = train_loader(group_of_one());
    Trainer trainer(run, make_strategy("single", group_of_one()));
    EXPECT_EQ(message_of<ConfigError>(
                  [&] { trainer.fit(task, loader, [] { return test_loader(group_of_one()); }); }),
              watching +
                  ": the evaluation has no value 'loss'; it has share, train_loss; did you mean "
                  "'train_loss'?");
    EXPECT_EQ(listener.events, "") << owner;
  }
}

// Each rank either detects the error itself or is told by the rank that has ended the group.
TEST(TrainerStops, NameAValueThatThereIsNotOnAllRanks) {
  TrainerOptions run = options(2);
  run.early_stopping = EarlyStoppingOptions{.monitor = "psnr"};
  std::vector<std::string> messages(2);
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    messages[static_cast<std::size_t>(group.rank())] =
        message_of<Error>([&] { train(run, group, false); });
  });
  ASSERT_EQ(errors, testing_support::no_errors(2));
  for (const std::string& message : messages) EXPECT_THAT(message, HasSubstr("no value 'psnr'"));
}

// The third epoch is evaluated only because the run stops there. If that counted as an evaluation
// without improvement, the rate would fall in epoch 4 instead of epoch 5.
TEST(TrainerPlateau, DoesNotCountTheExtraEvaluationAtAStop) {
  const auto rates_of = [](TrainerOptions run) {
    CountingListener listener;
    run.listeners = {&listener};
    EXPECT_TRUE(train(run).report.test);
    return listener.rates;
  };
  TrainerOptions run = standing_still(7);
  run.optimizer = SgdOptions{.lr = 1e-6};
  run.check_val_every_n_epoch = 2;
  run.schedule = {.kind = ScheduleKind::kPlateau, .plateau = {.factor = 0.5, .patience = 0}};
  run.early_stopping = EarlyStoppingOptions{.patience = 3};
  const std::vector<double> whole = rates_of(run);
  EXPECT_EQ(whole, (std::vector<double>{1e-6, 1e-6, 1e-6, 1e-6, 0.5e-6, 0.5e-6, 0.25e-6}));
  const TemporaryDirectory directory;
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = 3;
  std::vector<double> both = rates_of(run);
  run.max_steps.reset();
  run.resume = true;
  for (const double rate : rates_of(run)) both.push_back(rate);
  EXPECT_EQ(both, whole);
}

TEST(TrainerPlateau, SaysThatItKeepsItsRateWhenItIsResumed) {
  const TemporaryDirectory directory;
  TrainerOptions run = standing_still(2);
  run.optimizer = SgdOptions{.lr = 1e-6};
  run.schedule = {.kind = ScheduleKind::kPlateau};
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = 1;
  train(run);
  run.max_steps.reset();
  run.resume = true;
  run.optimizer = SgdOptions{.lr = 1e-3};
  CountingListener listener;
  run.listeners = {&listener};
  const testing_support::CapturedLog log;
  train(run);
  EXPECT_EQ(listener.rates, std::vector<double>{1e-6});
  EXPECT_EQ(listener.announced_rate, 1e-6) << "what the heading of the run shows";
  EXPECT_THAT(log.lines(),
              testing::ElementsAre("warning: the learning rate goes on as schedule plateau has "
                                   "left it, from 1e-06; the new one, 0.001, changes nothing"));
}

TEST(BestValue, IsTheFirstOfEqualFiniteValues) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  for (const MetricGoal mode : {MetricGoal::kMin, MetricGoal::kMax}) {
    const double sign = mode == MetricGoal::kMin ? 1 : -1;
    BestValue best("loss", mode);
    best.step({.value = nan, .epoch = 1, .step = 6});
    best.step({.value = -sign * infinity, .epoch = 1, .step = 6});
    EXPECT_FALSE(best.found());
    EXPECT_EQ(best.state(), "");
    best.step({.value = sign * 0.5, .epoch = 2, .step = 12});
    best.step({.value = sign * 0.1, .epoch = 3, .step = 18});
    best.step({.value = sign * 0.1, .epoch = 4, .step = 24});
    best.step({.value = sign * 0.2, .epoch = 5, .step = 30});
    BestValue restored("loss", mode);
    restored.restore(best.state());
    for (const BestValue& each : {best, restored}) {
      ASSERT_TRUE(each.found());
      EXPECT_EQ(each.found()->value, sign * 0.1);
      EXPECT_EQ(each.found()->epoch, 3);
      EXPECT_EQ(each.found()->step, 18);
    }
    restored.restore("");
    EXPECT_FALSE(restored.found());
  }
  EXPECT_EQ(BestValue("accuracy", MetricGoal::kMax).watched(), "max accuracy");
  EXPECT_EQ(testing_support::message_of<CheckpointError>(
                [] { BestValue("loss", MetricGoal::kMin).restore("0.5 1"); }),
            "the checkpoint's state of the best value is '0.5 1', expected 3 numbers");
}

// Each epoch has one step and one evaluation. The second evaluation is no better than the first.
TEST(TrainerPlateau, LowersTheRateAndGoesOnExactly) {
  const auto rates_of = [](TrainerOptions run) {
    CountingListener listener;
    run.listeners = {&listener};
    train(run);
    return listener.rates;
  };
  TrainerOptions run = standing_still(6);
  run.optimizer = SgdOptions{.lr = 1e-6};
  run.schedule = {.kind = ScheduleKind::kPlateau,
                  .warmup_epochs = 2,
                  .plateau = {.factor = 0.5, .patience = 0, .cooldown = 1}};
  const std::vector<double> whole = rates_of(run);
  // Warm-up, then half the rate in epochs 3 and 4, and a quarter after the cooldown epoch.
  EXPECT_EQ(whole, (std::vector<double>{0.5e-6, 1e-6, 0.5e-6, 0.5e-6, 0.25e-6, 0.25e-6}));
  const TemporaryDirectory directory;
  run.checkpoints.directory = directory / "checkpoints";
  run.max_steps = 3;
  std::vector<double> both = rates_of(run);
  run.max_steps.reset();
  run.resume = true;
  for (const double rate : rates_of(run)) both.push_back(rate);
  EXPECT_EQ(both, whole);
}

}  // namespace
}  // namespace lockstep::train
