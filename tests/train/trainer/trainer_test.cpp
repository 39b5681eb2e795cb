#include <lockstep/train/trainer.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/measuring/other_programs.h>
#include <lockstep/train/strategies/replica_strategy.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/train/staged_net.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

TEST(Trainer, LearnsAndReportsWhatHappened) {
  const Outcome outcome = train(options(4));
  const RunReport& report = outcome.report;
  ASSERT_EQ(report.epochs.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const EpochReport& epoch = report.epochs[i];
    EXPECT_EQ(epoch.epoch, static_cast<std::int64_t>(i + 1));
    ASSERT_TRUE(epoch.test);
    EXPECT_EQ(epoch.test->samples, 33);
    const PhaseSeconds& p = epoch.phases;
    for (const double seconds : {p.data, p.forward, p.backward, p.optimizer}) EXPECT_GT(seconds, 0);
    EXPECT_LE(p.data + p.forward + p.backward + p.communication + p.optimizer, epoch.seconds);
    EXPECT_EQ(p.stage_waits, 0);
    EXPECT_GT(epoch.first_batch_seconds, 0);
    EXPECT_LT(epoch.first_batch_seconds, p.data);
    EXPECT_EQ(epoch.processor_wait_seconds.has_value(), processor_wait_seconds().has_value());
    EXPECT_GE(epoch.processor_wait_seconds.value_or(0), 0);
    EXPECT_EQ(epoch.busy_processors.has_value(), busy_seconds(available_cpus()).has_value());
    EXPECT_GE(epoch.busy_processors.value_or(0), 0);
    EXPECT_NEAR(epoch.images_per_second * epoch.seconds, kImages, 1e-6);
    EXPECT_EQ(epoch.steps, 6);
    EXPECT_GT(epoch.processor_seconds, 0);
    EXPECT_GT(epoch.rss_bytes, 0);
    EXPECT_FALSE(epoch.gpu) << "the run is on the CPU";
  }
  EXPECT_LT(report.epochs.back().train_loss, report.epochs.front().train_loss);
  EXPECT_EQ(report.info.strategy, "single");
  EXPECT_EQ(report.info.backend, "none");
  EXPECT_EQ(report.info.steps_per_epoch, 6);
  EXPECT_EQ(report.info.parameters, 21840);
  EXPECT_EQ(report.info.precision, to_string(Precision::k32));
  EXPECT_EQ(report.info.device, "cpu");
  EXPECT_EQ(report.info.world_size, 1);
  EXPECT_EQ(report.info.accumulate_grad_batches, 1);
  EXPECT_EQ(report.info.learning_rate, 0.05);
  EXPECT_EQ(report.info.first_epoch, 1);
  EXPECT_EQ(report.info.first_step, 0);
  EXPECT_EQ(report.info.max_epochs, 4);
  EXPECT_GT(report.info.setup.model, 0);
  EXPECT_EQ(report.info.setup.synchronization, 0) << "there is no other rank";
  EXPECT_FALSE(report.already_complete);
  EXPECT_EQ(report.stop_reason, "");
  EXPECT_EQ(report.skipped_images, 0);
  EXPECT_TRUE(report.profile.empty());
  EXPECT_GT(report.peak_rss_bytes, 0);
  ASSERT_TRUE(report.test);
  EXPECT_EQ(report.test->loss, report.epochs.back().test->loss);
  EXPECT_GT(report.seconds_to_first_step, 0);
  double later_epochs = 0;
  for (std::size_t i = 1; i < 4; ++i) later_epochs += report.epochs[i].seconds;
  EXPECT_LE(report.seconds_to_first_step, report.seconds_total - later_epochs);
}

TEST(Trainer, TheSameSeedGivesTheSameBits) {
  expect_equal_bits(train(options(2)).state, train(options(2)).state);
}

TEST(Trainer, TellsListenersInOrder) {
  CountingListener listener;
  TrainerOptions two = options(2);
  two.listeners = {&listener};
  train(two);
  EXPECT_EQ(listener.events,
            "bsssssse"
            "sssssse"
            "E");
  EXPECT_EQ(listener.last.images, kImages);
  EXPECT_EQ(listener.last.step, 6);
  EXPECT_EQ(listener.last.epoch, 2);
  EXPECT_EQ(listener.last.steps_per_epoch, 6);
  EXPECT_GT(listener.last.loss, 0);
  EXPECT_GT(listener.last.seconds, 0);
  EXPECT_FALSE(listener.last.momentum) << "the schedule does not change it";
  EXPECT_DOUBLE_EQ(listener.last.learning_rate,
                   0.05 * learning_rate_factor(two.schedule, 11, 6, 12));
}

TEST(Trainer, MaxStepsEndsInTheMiddleOfAnEpoch) {
  CountingListener listener;
  TrainerOptions eight = options(5);
  eight.max_steps = 8;
  eight.listeners = {&listener};
  const RunReport report = train(eight).report;
  EXPECT_EQ(listener.events,
            "bsssssse"
            "sse"
            "E");
  EXPECT_EQ(report.epochs.size(), 2U);
  EXPECT_TRUE(report.test);
}

TEST(Trainer, LimitsTheEvaluation) {
  TrainerOptions some = options(1);
  some.limit_val_batches = 2;
  EXPECT_EQ(train(some).report.test->samples, 16);
  some.limit_val_batches = 0;
  EXPECT_FALSE(train(some).report.test);
}

// As when the data set does not fit on a GPU: the error must not come only after an epoch.
TEST(Trainer, TellsAtStartThatThereCanBeNoTestLoader) {
  CountingListener listener;
  TrainerOptions one = options(1);
  one.listeners = {&listener};
  Loader loader = train_loader(group_of_one());
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  Trainer trainer(one, make_strategy("single", group_of_one()));
  EXPECT_THROW(
      trainer.fit(task, loader, []() -> std::unique_ptr<Loader> { throw ConfigError("no"); }),
      ConfigError);
  EXPECT_EQ(listener.events, "");
}

TEST(Trainer, KnowsWhatTheLoaderSaysOfTheRun) {
  TrainerOptions bare = options(1);
  bare.info = {};
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    const RunInfo info = train(bare, group).report.info;
    EXPECT_EQ(info.global_batch, kGlobalBatch);
    EXPECT_EQ(info.loader, "native");
    EXPECT_EQ(info.threads_per_rank, 1);
    EXPECT_GT(info.setup.synchronization, 0);
    EXPECT_GT(info.setup.model, 0) << "without the synchronization";
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
}

TEST(Trainer, RefusesAListenerThatIsNotThere) {
  TrainerOptions one = options(1);
  one.listeners = {std::unique_ptr<Listener>()};
  EXPECT_EQ(testing_support::message_of<ConfigError>(
                [&] { Trainer(one, make_strategy("single", group_of_one())); }),
            "Trainer: a listener is a null pointer");
}

TEST(Trainer, TakesATestLoaderAsItIs) {
  const ProcessGroup group = group_of_one();
  Loader loader = train_loader(group);
  const std::unique_ptr<Loader> tests = test_loader(group);
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  Trainer trainer(options(2), make_strategy("single", group));
  const RunReport report = trainer.fit(task, loader, *tests);
  ASSERT_EQ(report.epochs.size(), 2U);
  for (const EpochReport& epoch : report.epochs) EXPECT_TRUE(epoch.test);
  EXPECT_EQ(trainer.fit(task, loader, *tests).epochs.size(), 2U) << "the loader is still there";
}

struct Ended final : Listener {
  explicit Ended(std::vector<std::string>& ends) : ends_(ends) {}
  ~Ended() override { ends_.push_back("gone"); }
  void on_step(const StepReport& report) override {
    if (report.step == 3) throw Error("the listener failed");
  }
  void on_run_end(const RunReport&) override { ends_.push_back("the run has ended"); }
  void on_exception(const std::exception& error) noexcept override {
    ends_.push_back(error.what());
  }

 private:
  std::vector<std::string>& ends_;
};

TEST(Trainer, TellsItsListenersThatTheRunFailed) {
  std::vector<std::string> ends;
  CountingListener others;
  {
    TrainerOptions one = options(1);
    one.listeners = {&others, std::make_unique<Ended>(ends)};
    EXPECT_THROW(train(one), Error);
    EXPECT_EQ(ends, std::vector<std::string>{"the listener failed"}) << "the options keep it";
  }
  EXPECT_EQ(ends, (std::vector<std::string>{"the listener failed", "gone"}));
}

// Rank 1 fails with an exception that is no std::exception. Only rank 0 informs its listeners.
TEST(Trainer, TellsOtherRanksThatAForeignExceptionWasThrown) {
  class ForeignTask final : public ClassificationTask {
   public:
    explicit ForeignTask(bool fails)
        : ClassificationTask(make_digits_net(/*dropout=*/false),
                             ClassificationLoss::kNegativeLogLikelihood),
          fails_(fails) {}
    torch::Tensor training_step(const Batch& batch) override {
      if (fails_) throw 42;
      return ClassificationTask::training_step(batch);
    }

   private:
    const bool fails_;
  };
  std::vector<std::vector<std::string>> ends(2);
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    ForeignTask task(group.rank() == 1);
    Loader loader = train_loader(group);
    TrainerOptions run = options(1);
    run.listeners = {std::make_unique<Ended>(ends[static_cast<std::size_t>(group.rank())])};
    try {
      Trainer(run, make_strategy("ddp", group)).fit(task, loader);
    } catch (int number) {
      throw Error(str("the number ", number));
    }
  });
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_THAT(errors[0], ::testing::HasSubstr(kForeignException));
  EXPECT_EQ(errors[1], "the number 42");
  EXPECT_THAT(ends[0], ::testing::ElementsAre(::testing::HasSubstr(kForeignException), "gone"));
  EXPECT_THAT(ends[1], ::testing::ElementsAre("gone"));
}

TEST(ClassificationTask, TakesProbabilitiesAsAMixedBatchHasThem) {
  torch::manual_seed(3);
  Batch classes{torch::randn({6, 1, 28, 28}), torch::tensor({3, 1, 4, 1, 5, 9}), 6};
  Batch probabilities = classes;
  probabilities.labels = torch::one_hot(classes.labels, 10).to(torch::kFloat32);
  Batch half = classes;
  half.labels = 0.25 * probabilities.labels + 0.75 * probabilities.labels.roll(1, 0);
  Batch rolled = classes;
  rolled.labels = classes.labels.roll(1, 0);
  for (const auto loss :
       {ClassificationLoss::kCrossEntropy, ClassificationLoss::kNegativeLogLikelihood}) {
    ClassificationTask task(MnistNet(MnistNetOptions{.dropout = false}), loss);
    const auto loss_of = [&](const Batch& batch) {
      return task.training_step(batch).item<double>();
    };
    EXPECT_NEAR(loss_of(probabilities), loss_of(classes), 1e-5);
    EXPECT_NEAR(loss_of(half), 0.25 * loss_of(classes) + 0.75 * loss_of(rolled), 1e-5);
  }
}

TEST(Trainer, CountsTheImagesThatAreSkipped) {
  class Damaged final : public ImageSource {
   public:
    std::int64_t size() const override { return kImages; }
    void read(std::int64_t index, ImageReader& reader) const override {
      if (index % 11 == 0) throw DataError("damaged");
      reader.show(train_images().image(index));
    }
    std::int64_t label(std::int64_t index) const override { return train_images().label(index); }
  };
  const testing_support::CapturedLog log;
  const ImageDataset damaged("damaged", {1, 28, 28}, 10, std::make_shared<const Damaged>());
  Loader loader(damaged, DistributedSampler(kImages, {}), kNormalize,
                {.batch_size = kGlobalBatch, .on_corrupt_image = OnCorruptImage::kSkip});
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  const RunReport report =
      Trainer(options(2), make_strategy("single", group_of_one())).fit(task, loader);
  EXPECT_EQ(report.skipped_images, 2 * 10);
  EXPECT_THAT(log.lines(), ::testing::SizeIs(10));
  EXPECT_EQ(
      Trainer(options(1), make_strategy("single", group_of_one())).fit(task, loader).skipped_images,
      10)
      << "those of the run before do not count";
  const EpochReport& last = report.epochs.back();
  EXPECT_NEAR(last.images_per_second * last.seconds, kImages - 10, 1e-6);
}

// Only one rank of each data share counts its images, and only images of the training data are
// damaged.
TEST(Trainer, CountsTheImagesThatAreSkippedOnSeveralRanks) {
  class Damaged final : public ImageSource {
   public:
    std::int64_t size() const override { return kImages; }
    void read(std::int64_t index, ImageReader& reader) const override {
      if (index % 11 == 3) throw DataError("damaged");
      reader.show(train_images().image(index));
    }
    std::int64_t label(std::int64_t index) const override { return train_images().label(index); }
  };
  struct RankWay {
    int ranks;
    StagedRun run;
  };
  const StrategyOptions staged = {.stages = 2, .micro_batches = 2};
  const RankWay ways[] = {{2, {.strategy = "ddp"}},
                          {2, {.strategy = "zero1"}},
                          {2, {.strategy = "pipeline", .options = staged}},
                          {4, {.strategy = "hybrid", .options = staged}}};
  const ImageDataset damaged("damaged", {1, 28, 28}, 10, std::make_shared<const Damaged>());
  for (const RankWay& way : ways) {
    const testing_support::CapturedLog log;
    const auto errors = testing_support::run_group(way.ranks, "shm", [&](ProcessGroup group) {
      at::set_num_threads(1);
      auto strategy = make_strategy(way.run.strategy, group, way.run.options);
      const DataShare share = strategy->data_share();
      Loader loader(
          damaged, DistributedSampler(kImages, {.rank = share.rank, .world_size = share.size}),
          kNormalize,
          {.batch_size = kGlobalBatch / share.size, .on_corrupt_image = OnCorruptImage::kSkip});
      ClassificationTask task = make_staged_task(make_staged_net());
      const RunReport report = Trainer(options(2), std::move(strategy)).fit(task, loader);
      LOCKSTEP_CHECK(report.skipped_images == 2 * 10, "skipped ", report.skipped_images);
    });
    EXPECT_EQ(errors, testing_support::no_errors(way.ranks)) << way.run.strategy;
  }
}

// The images of a data set, of which every `interval`-th cannot be read.
ImageDataset partly_damaged(const ImageDataset& images, std::int64_t interval) {
  class Damaged final : public ImageSource {
   public:
    Damaged(ImageDataset images, std::int64_t interval)
        : images_(std::move(images)), interval_(interval) {}
    std::int64_t size() const override { return images_.size(); }
    void read(std::int64_t index, ImageReader& reader) const override {
      if (index % interval_ == 0) throw DataError("damaged");
      reader.show(images_.image(index));
    }
    std::int64_t label(std::int64_t index) const override { return images_.label(index); }

   private:
    const ImageDataset images_;
    const std::int64_t interval_;
  };
  return ImageDataset("damaged", {1, 28, 28}, 10,
                      std::make_shared<const Damaged>(images, interval));
}

// A validation loader may serve several runs.
TEST(Trainer, CountsTheImagesThatEvaluationsSkip) {
  const testing_support::CapturedLog log;
  const ProcessGroup group = group_of_one();
  const ImageDataset damaged = partly_damaged(test_images(), 11);
  Loader training = train_loader(group);
  Loader validation(damaged, EvaluationSampler(damaged.size(), 0, 1), kNormalize,
                    {.batch_size = 8, .on_corrupt_image = OnCorruptImage::kSkip});
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  Trainer trainer(options(2), make_strategy("single", group));
  const RunReport report = trainer.fit(task, training, validation);
  EXPECT_EQ(report.skipped_images, 2 * 3);
  ASSERT_TRUE(report.test);
  EXPECT_EQ(report.test->samples, 33 - 3);
  EXPECT_EQ(trainer.fit(task, training, validation).skipped_images, 2 * 3)
      << "those of the run before do not count";
}

// The summary runs the model on a batch that the run does not train on.
TEST(Trainer, DoesNotCountTheImagesThatTheSummarySkips) {
  const testing_support::CapturedLog log;
  const ImageDataset damaged = partly_damaged(train_images(), 2);
  Loader loader(damaged, DistributedSampler(kImages, {}), kNormalize,
                {.batch_size = kGlobalBatch, .on_corrupt_image = OnCorruptImage::kSkip});
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  TrainerOptions with_summary = options(1);
  with_summary.model_summary_depth = 1;
  EXPECT_EQ(Trainer(with_summary, make_strategy("single", group_of_one()))
                .fit(task, loader)
                .skipped_images,
            kImages / 2);
}

// A step of two batches of ten equals a step of twenty. The last step of an epoch has only one
// batch.
TEST(Trainer, AccumulatesGradientsOfSeveralBatches) {
  CountingListener listener;
  TrainerOptions two = options(2);
  two.accumulate_grad_batches = 2;
  two.listeners = {&listener};
  const Outcome outcome = train(two, group_of_one(), /*dropout=*/false, "single", kGlobalBatch / 2);
  EXPECT_EQ(listener.events,
            "bsssssse"
            "sssssse"
            "E");
  EXPECT_EQ(listener.last.images, kImages);
  EXPECT_EQ(outcome.report.info.steps_per_epoch, 6);
  EXPECT_EQ(outcome.report.info.accumulate_grad_batches, 2);
  const Outcome whole = train(options(2), group_of_one(), /*dropout=*/false);
  expect_close(outcome.state, whole.state);
  EXPECT_NEAR(outcome.report.epochs[0].train_loss, whole.report.epochs[0].train_loss, 1e-5);
}

// The reports of a run of one epoch that changes no weight.
std::vector<StepReport> reports_of_steps(std::int64_t accumulated) {
  struct : Listener {
    void on_step(const StepReport& report) override { reports.push_back(report); }
    std::vector<StepReport> reports;
  } listener;
  TrainerOptions still = options(1);
  still.optimizer = SgdOptions{.lr = 0};
  still.accumulate_grad_batches = accumulated;
  still.limit_val_batches = 0;
  still.listeners = {&listener};
  train(still, group_of_one(), /*dropout=*/false);
  return listener.reports;
}

// The last step of an epoch may have fewer batches than the others.
TEST(Trainer, ReportsTheMeanLossOfTheBatchesOfAStep) {
  const std::vector<StepReport> single = reports_of_steps(1);
  ASSERT_EQ(single.size(), 6U);
  EXPECT_GT(std::abs(single[4].loss - single[5].loss), 1e-4) << "equal losses are no test";
  for (const std::int64_t parts : {2, 4}) {
    const std::vector<StepReport> several = reports_of_steps(parts);
    const std::int64_t steps = (6 + parts - 1) / parts;
    ASSERT_EQ(several.size(), static_cast<std::size_t>(steps));
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t begin = step * parts, end = std::min<std::int64_t>(begin + parts, 6);
      double sum = 0;
      for (std::int64_t i = begin; i < end; ++i) sum += single[static_cast<std::size_t>(i)].loss;
      const StepReport& report = several[static_cast<std::size_t>(step)];
      EXPECT_NEAR(report.loss, sum / static_cast<double>(end - begin), 1e-5) << parts << step;
      EXPECT_EQ(report.images, std::min<std::int64_t>(end * kGlobalBatch, kImages));
      EXPECT_EQ(report.epoch, 1);
      EXPECT_EQ(report.step, step + 1);
      EXPECT_EQ(report.steps_per_epoch, steps);
    }
  }
}

TEST(Trainer, AccumulatesOnAllRanks) {
  TrainerOptions two = options(2);
  two.accumulate_grad_batches = 2;
  const Outcome ddp = train_ranks(2, "shm", "ddp", two, kGlobalBatch / 2);
  expect_close(ddp.state, train_ranks(2, "shm", "ddp", options(2)).state);
  expect_equal_bits(train_ranks(2, "shm", "zero1", two, kGlobalBatch / 2).state, ddp.state);
}

TEST(Trainer, ClipsGradientsByTheirNorm) {
  TrainerOptions clipped = options(1);
  clipped.optimizer = SgdOptions{.lr = 0.5};
  clipped.schedule = {};
  clipped.gradient_clip_norm = 0.01;
  EXPECT_NEAR(distance(after_steps(clipped, 1), initial_state()), 0.5 * 0.01, 1e-5);
}

TEST(Trainer, InFloat16SkipsTheStepsThatOverflow) {
  TrainerOptions half = options(1);
  half.precision = Precision::kFp16;
  half.grad_scaler = {.init_scale = 1e12, .backoff_factor = 1e-9};
  expect_equal_bits(after_steps(half, 1), initial_state());
  EXPECT_GT(distance(after_steps(half, 2), initial_state()), 1e-3);
}

TEST(Trainer, InFloat16TrainsAsInFloat32) {
  const StateDict single = after_steps(options(2), 12);
  TrainerOptions half = options(2);
  half.precision = Precision::kFp16;
  const double trained = distance(single, initial_state());
  // The distance is large if float16 flushes gradients to zero, or if gradients keep the scale.
  EXPECT_LT(distance(after_steps(half, 12), single), 0.05 * trained);
}

// The ranks are threads and share LibTorch's generator, so that the net has no dropout.
TEST(TrainerDdp, TwoRanksEqualOneProcessWithTheSameGlobalBatch) {
  const Outcome alone = train(options(2), group_of_one(), /*dropout=*/false);
  std::vector<Outcome> outcomes(2);
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    outcomes[group.rank()] = train(options(2), group, /*dropout=*/false);
  });
  for (const auto& error : errors) ASSERT_EQ(error, "");
  expect_equal_bits(outcomes[0].state, outcomes[1].state);
  for (std::size_t i = 0; i < alone.state.size(); ++i) {
    EXPECT_TRUE(torch::allclose(outcomes[0].state[i].second, alone.state[i].second, 1e-3, 1e-5))
        << alone.state[i].first;
  }
  EXPECT_EQ(outcomes[0].report.info.strategy, "ddp");
  EXPECT_EQ(outcomes[0].report.info.backend, "shm");
  EXPECT_EQ(outcomes[0].report.test->samples, 33);
  EXPECT_NEAR(outcomes[0].report.test->loss, alone.report.test->loss, 1e-4);
  EXPECT_NEAR(outcomes[1].report.epochs[0].train_loss, alone.report.epochs[0].train_loss, 1e-4);
}

// A single rank whose buffers take a while to arrive.
class SlowBuffers final : public ReplicaStrategy {
 public:
  SlowBuffers() : ReplicaStrategy("slow", group_of_one()) {}

 protected:
  void before_forward(const StepPart& /*part*/) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
};

TEST(Trainer, BooksTheBroadcastOfBuffersAsCommunication) {
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  Loader loader = train_loader(group_of_one());
  Trainer trainer(options(1), std::make_unique<SlowBuffers>());
  const PhaseSeconds phases = trainer.fit(task, loader).epochs[0].phases;
  EXPECT_GE(phases.communication, 6 * 0.020);
}

// Rank 1 comes 20 ms late to each optimizer step.
class LateTask final : public ClassificationTask {
 public:
  explicit LateTask(int rank)
      : ClassificationTask(MnistNet(MnistNetOptions{.dropout = false}),
                           ClassificationLoss::kNegativeLogLikelihood),
        late_(rank == 1 ? 20 : 0) {}
  torch::Tensor training_step(const Batch& batch) override {
    std::this_thread::sleep_for(late_);
    return ClassificationTask::training_step(batch);
  }

 private:
  const std::chrono::milliseconds late_;
};

// ZeRO on shared memory reduces gradients in the optimizer's step, between barriers. How long rank
// 0 waits there also depends on the machine.
TEST(TrainerZero, BooksTheBarriersOfItsOptimizerAsCommunication) {
  for (const OnNan on_nan : {OnNan::kWarn, OnNan::kSkip}) {  // which reduces before the step
    PhaseSeconds phases;
    const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
      at::set_num_threads(1);
      LateTask task(group.rank());
      Loader loader = train_loader(group);
      TrainerOptions run = options(1);
      run.on_nan = on_nan;
      const RunReport report = Trainer(run, make_strategy("zero1", group)).fit(task, loader);
      if (group.rank() == 0) phases = report.epochs[0].phases;
    });
    EXPECT_EQ(errors, testing_support::no_errors(2));
    EXPECT_GE(phases.communication, 0.030) << to_string(on_nan);
    EXPECT_GE(phases.optimizer, 0) << to_string(on_nan);
  }
}

// With shared memory the ranks share the parameters, over Gloo they do not.
TEST(TrainerZero, TrainsAsDdp) {
  TrainerOptions adamw = options(2);
  adamw.optimizer = AdamWOptions{};
  TrainerOptions half = options(2);
  half.precision = Precision::kFp16;
  half.grad_scaler = {.init_scale = 1e12, .backoff_factor = 1e-3};
  for (const TrainerOptions& each : {options(2), adamw, half}) {
    const Outcome ddp = train_ranks(2, "shm", "ddp", each);
    const Outcome shared = train_ranks(2, "shm", "zero1", each);
    expect_equal_bits(shared.state, ddp.state);
    expect_equal_bits(train_ranks(2, "gloo", "zero1", each).state, ddp.state);
    EXPECT_EQ(shared.report.info.strategy, "zero1");
    EXPECT_EQ(shared.report.test->loss, ddp.report.test->loss);
  }
}

TEST(TrainerZero, ClipsWithTheOthers) {
  TrainerOptions clipped = options(1);
  clipped.optimizer = SgdOptions{.lr = 0.5};
  clipped.schedule = {};
  clipped.gradient_clip_norm = 0.01;
  clipped.max_steps = 1;
  clipped.limit_val_batches = 0;
  const Outcome outcome = train_ranks(2, "shm", "zero1", clipped);
  EXPECT_NEAR(distance(outcome.state, initial_state()), 0.5 * 0.01, 1e-5);
}

TEST(Trainer, RefusesImpossibleOptions) {
  const auto make = [](TrainerOptions o) {
    Trainer(std::move(o), make_strategy("single", group_of_one()));
  };
  EXPECT_THROW(make({.max_epochs = 0}), ConfigError);
  EXPECT_THROW(make({.max_epochs = std::int64_t{1} << 60}), ConfigError);
  EXPECT_THROW(make({.max_steps = 0}), ConfigError);
  EXPECT_THROW(make({.accumulate_grad_batches = 0}), ConfigError);
  EXPECT_THROW(make({.gradient_clip_norm = 0}), ConfigError);
  EXPECT_THROW(make({.schedule = {.warmup_epochs = -1}}), ConfigError);
}

}  // namespace
}  // namespace lockstep::train
