#include <lockstep/train/trainer.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/data/sampler.h>
#include <lockstep/data/synthetic_digits.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/train/state_dict.h>
#include <tests/support/groups.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGlobalBatch = 20;
constexpr std::int64_t kImages = 110;  // six steps an epoch: five full, one of ten

const ImageDataset& train_images() {
  static const ImageDataset images = make_synthetic_digits(Split::kTrain, {.count = kImages});
  return images;
}

const ImageDataset& test_images() {
  static const ImageDataset images = make_synthetic_digits(Split::kTest, {.count = 33});
  return images;
}

const Augmentation kNormalize = {Normalize{{0.13}, {0.31}}};

Loader train_loader(const ProcessGroup& group, std::int64_t global_batch = kGlobalBatch) {
  return Loader(train_images(),
                DistributedSampler(kImages, {.rank = group.rank(), .world_size = group.size()}),
                kNormalize, {.batch_size = global_batch / group.size()});
}

std::unique_ptr<Loader> test_loader(const ProcessGroup& group) {
  return std::make_unique<Loader>(
      test_images(), EvaluationSampler(test_images().size(), group.rank(), group.size()),
      kNormalize, LoaderOptions{.batch_size = 8});
}

TrainerOptions options(std::int64_t epochs) {
  return {.max_epochs = epochs,
          .optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9},
          .schedule = {.kind = ScheduleKind::kCosine},
          .seed = 5,
          .info = {.recipe = "digits", .global_batch = kGlobalBatch}};
}

struct Outcome {
  RunReport report;
  StateDict state;
};

// Each run starts from the same weights, as ranks do from one seed.
Outcome train(const TrainerOptions& trainer_options, ProcessGroup group = init_process_group(),
              bool dropout = true, std::string strategy = "",
              std::int64_t global_batch = kGlobalBatch) {
  MnistNet net(MnistNetOptions{.dropout = dropout});
  torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    const auto size = parameter.numel();
    parameter.copy_((torch::arange(size).mul(0.7).sin() / std::sqrt(size / parameter.size(0) + 1.0))
                        .view_as(parameter));
  }
  at::GradMode::set_enabled(true);
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  Loader loader = train_loader(group, global_batch);
  if (strategy.empty()) strategy = group.size() == 1 ? "single" : "ddp";
  Trainer trainer(trainer_options, make_strategy(strategy, group));
  Outcome outcome{trainer.fit(task, loader, [&] { return test_loader(group); }), {}};
  for (const auto& [name, tensor] : state_dict(*net)) {
    outcome.state.emplace_back(name, tensor.clone());
  }
  return outcome;
}

void expect_equal_bits(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
}

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
    EXPECT_NEAR(epoch.images_per_second * epoch.seconds, kImages, 1e-6);
  }
  EXPECT_LT(report.epochs.back().train_loss, report.epochs.front().train_loss);
  EXPECT_EQ(report.info.strategy, "single");
  EXPECT_EQ(report.info.backend, "none");
  EXPECT_EQ(report.info.steps_per_epoch, 6);
  EXPECT_EQ(report.info.parameters, 21840);
  EXPECT_GT(report.seconds_to_first_step, 0);
  EXPECT_GE(report.seconds_total, report.seconds_to_first_step);
}

TEST(Trainer, TheSameSeedGivesTheSameBits) {
  expect_equal_bits(train(options(2)).state, train(options(2)).state);
}

struct CountingListener : Listener {
  void on_run_begin(const RunInfo&) override { events += "b"; }
  void on_step(const StepReport& report) override {
    events += "s";
    if (steps_until_failure-- == 0) throw Error("the listener failed");
    last = report;
  }
  void on_epoch_end(const EpochReport&) override { events += "e"; }
  void on_run_end(const RunReport&) override { events += "E"; }

  int steps_until_failure = -1;
  std::string events;
  StepReport last;
};

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
  some.limit_test_batches = 2;
  EXPECT_EQ(train(some).report.test->samples, 16);
  some.limit_test_batches = 0;
  EXPECT_FALSE(train(some).report.test);
}

TEST(TrainerResume, AfterAFailureGivesTheSameBitsAsNoFailure) {
  const lockstep::testing::TemporaryDirectory directory;
  TrainerOptions interrupted = options(3);
  interrupted.checkpoint = directory.path() / "c.safetensors";
  CountingListener listener;
  listener.steps_until_failure = 8;  // in the second epoch
  interrupted.listeners = {&listener};
  EXPECT_THROW(train(interrupted), Error);

  TrainerOptions resumed = options(3);
  resumed.checkpoint = interrupted.checkpoint;
  resumed.resume = true;
  const Outcome outcome = train(resumed);
  EXPECT_EQ(outcome.report.info.first_epoch, 2);
  EXPECT_EQ(outcome.report.epochs.size(), 2U);
  const Outcome whole = train(options(3));
  expect_equal_bits(outcome.state, whole.state);
  EXPECT_EQ(outcome.report.test->loss, whole.report.test->loss);
}

TEST(TrainerResume, InTheMiddleOfAnEpochGivesTheSameBits) {
  const lockstep::testing::TemporaryDirectory directory;
  TrainerOptions first = options(2);
  const Outcome whole = train(first);
  first.checkpoint = directory.path() / "c.safetensors";
  first.max_steps = 8;
  train(first);
  TrainerOptions second = first;
  second.max_steps.reset();
  second.resume = true;
  expect_equal_bits(train(second).state, whole.state);
}

TEST(TrainerResume, WithAnotherBatchSizeTakesEachImageOfTheEpochOnce) {
  const lockstep::testing::TemporaryDirectory directory;
  TrainerOptions first = options(2);
  first.checkpoint = directory.path() / "c.safetensors";
  first.max_steps = 8;  // two steps of the second epoch: 40 images
  train(first);
  for (const std::int64_t batch : {10, 40, 15}) {
    const fs::path copy = directory.path() / "copy.safetensors";
    fs::copy_file(first.checkpoint, copy, fs::copy_options::overwrite_existing);
    CountingListener listener;
    TrainerOptions second = options(2);
    second.checkpoint = copy;
    second.resume = true;
    second.listeners = {&listener};
    train(second, init_process_group(), true, "", batch);
    EXPECT_EQ(listener.last.images, kImages - 40) << batch;
    EXPECT_EQ(listener.last.step, (kImages + batch - 1) / batch) << "steps are those of the new size";
    EXPECT_EQ(std::count(listener.events.begin(), listener.events.end(), 's'), (70 + batch - 1) / batch);
  }
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
  set_log_sink([](LogLevel, const std::string&) {});
  const ImageDataset damaged("damaged", {1, 28, 28}, 10, std::make_shared<const Damaged>());
  Loader loader(damaged, DistributedSampler(kImages, {}), kNormalize,
                {.batch_size = kGlobalBatch, .on_corrupt_image = OnCorruptImage::kSkip});
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  const RunReport report =
      Trainer(options(2), make_strategy("single", init_process_group())).fit(task, loader);
  set_log_sink(nullptr);
  EXPECT_EQ(report.skipped_images, 2 * 10);
  const EpochReport& last = report.epochs.back();
  EXPECT_NEAR(last.images_per_second * last.seconds, kImages - 10, 1e-6);
}

TEST(TrainerResume, GoesOnExactlyWithEveryOptimizerAndPrecision) {
  TrainerOptions adam = options(2);
  adam.optimizer = AdamOptions{.amsgrad = true};
  adam.gradient_clip_norm = 0.5;
  TrainerOptions half = options(2);
  half.optimizer = AdamWOptions{};
  half.precision = Precision::kFp16;
  // The scale falls in the first steps: begun anew, it would do so again.
  half.grad_scaler = {.init_scale = 1e12, .backoff_factor = 1e-3};
  for (TrainerOptions& first : {std::ref(adam), std::ref(half)}) {
    const lockstep::testing::TemporaryDirectory directory;
    const Outcome whole = train(first);
    first.checkpoint = directory.path() / "c.safetensors";
    first.max_steps = 8;
    train(first);
    first.max_steps.reset();
    first.resume = true;
    expect_equal_bits(train(first).state, whole.state);
  }
}

TEST(TrainerResume, NamesEveryValueThatDiffers) {
  const lockstep::testing::TemporaryDirectory directory;
  TrainerOptions first = options(3);
  first.max_steps = 2;
  first.checkpoint = directory.path() / "c.safetensors";
  train(first);
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  TrainerOptions second = first;
  second.resume = true;
  second.max_steps = 4;
  train(second);
  EXPECT_THAT(warnings, ::testing::IsEmpty()) << "nothing that matters differs";
  second.max_steps = 6;
  second.max_epochs = 4;
  second.seed = 6;
  second.optimizer = SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.001};
  second.gradient_clip_norm = 1e6;
  train(second);
  set_log_sink(nullptr);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0],
              ::testing::EndsWith("trained with gradient_clip_norm none (now 1e+06), lr 0.05 (now "
                                  "0.1), schedule cosine to 0 over 3 epochs "
                                  "(now cosine to 0 over 4 epochs), seed 5 (now 6), "
                                  "weight_decay 0 (now 0.001)"));
}

double distance(const StateDict& a, const StateDict& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i].second - b[i].second).square().sum().item<double>();
  }
  return std::sqrt(sum);
}

StateDict after_steps(TrainerOptions trainer_options, std::int64_t steps) {
  trainer_options.max_steps = steps;
  trainer_options.limit_test_batches = 0;
  return train(trainer_options, init_process_group(), /*dropout=*/false).state;
}

StateDict initial_state() {
  TrainerOptions still = options(1);
  still.optimizer = SgdOptions{.lr = 0};
  return after_steps(still, 1);
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
  // Where a gradient is lost to its range, or the scale stays in it, they are far apart.
  EXPECT_LT(distance(after_steps(half, 12), single), 0.05 * trained);
}

TEST(TrainerResume, RefusesARunThatIsDone) {
  const lockstep::testing::TemporaryDirectory directory;
  TrainerOptions done = options(1);
  done.checkpoint = directory.path() / "c.safetensors";
  train(done);
  done.resume = true;
  EXPECT_THROW(train(done), CheckpointError);
  done.checkpoint.clear();
  EXPECT_THROW(train(done), ConfigError);
}

// Ranks are threads here and share LibTorch's generator, so this goes without dropout.
TEST(TrainerDdp, TwoRanksEqualOneProcessWithTheSameGlobalBatch) {
  const Outcome alone = train(options(2), init_process_group(), /*dropout=*/false);
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

// Alone in the world, with buffers that take a while to arrive.
class SlowBuffers : public Strategy {
 public:
  const std::string& name() const override { return name_; }
  ProcessGroup& group() override { return group_; }
  void attach(torch::nn::Module&) override {}
  std::unique_ptr<RunOptimizer> make_optimizer(const torch::nn::Module& module,
                                               const OptimizerOptions& optimizer) override {
    return make_replicated_optimizer(module, optimizer, group_);
  }
  void before_forward() override { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
  double communication_seconds() const override { return 0; }

 private:
  const std::string name_ = "slow";
  ProcessGroup group_ = init_process_group();
};

TEST(Trainer, BooksTheBroadcastOfBuffersAsCommunication) {
  ClassificationTask task(MnistNet(), ClassificationLoss::kNegativeLogLikelihood);
  Loader loader = train_loader(init_process_group());
  Trainer trainer(options(1), std::make_unique<SlowBuffers>());
  const PhaseSeconds phases = trainer.fit(task, loader).epochs[0].phases;
  EXPECT_GE(phases.communication, 6 * 0.020);
}

TEST(TrainerDdp, ResumesOnAllRanksFromRankZerosFile) {
  const lockstep::testing::TemporaryDirectory directory;
  std::vector<Outcome> whole(2);
  std::vector<Outcome> resumed(2);
  const auto run = [&](std::vector<Outcome>& outcomes, std::int64_t epochs, bool resume) {
    const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
      TrainerOptions o = options(epochs);
      o.schedule = {};
      o.optimizer = AdamOptions{};
      if (&outcomes == &resumed) {
        const std::string name = group.rank() == 0 ? "c.safetensors" : "elsewhere.safetensors";
        o.checkpoint = directory.path() / name;
        o.resume = resume;
      }
      outcomes[group.rank()] = train(o, group, /*dropout=*/false);
    });
    for (const auto& error : errors) ASSERT_EQ(error, "");
  };
  run(whole, 2, false);
  run(resumed, 1, false);
  run(resumed, 2, true);
  expect_equal_bits(resumed[0].state, whole[0].state);
  expect_equal_bits(resumed[1].state, whole[0].state);
}

// Rank 0's outcome.
Outcome train_ranks(int size, const std::string& backend, const std::string& strategy,
                    const TrainerOptions& trainer_options) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  const auto errors = testing_support::run_group(size, backend, [&](ProcessGroup group) {
    at::set_num_threads(1);
    outcomes[group.rank()] = train(trainer_options, group, /*dropout=*/false, strategy);
  });
  EXPECT_EQ(errors, testing_support::no_errors(size));
  for (const Outcome& outcome : outcomes) expect_equal_bits(outcome.state, outcomes[0].state);
  return outcomes[0];
}

// On shared memory the ranks share the parameters, over Gloo they don't.
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
  clipped.limit_test_batches = 0;
  const Outcome outcome = train_ranks(2, "shm", "zero1", clipped);
  EXPECT_NEAR(distance(outcome.state, initial_state()), 0.5 * 0.01, 1e-5);
}

// The file is one process's, whoever has written it.
TEST(TrainerZero, ResumesWithAnotherNumberOfRanksAndAnotherStrategy) {
  struct Second {
    int ranks;
    const char* backend;
    const char* strategy;
  };
  TrainerOptions first = options(2);
  first.schedule = {};
  first.optimizer = AdamWOptions{.lr = 1e-3};
  const StateDict whole = train_ranks(2, "shm", "zero1", first).state;
  const double trained = distance(whole, initial_state());
  for (const Second& second :
       {Second{2, "shm", "zero1"}, Second{4, "shm", "zero1"}, Second{1, "auto", "zero1"},
        Second{2, "gloo", "zero1"}, Second{1, "auto", "single"}, Second{2, "shm", "ddp"}}) {
    const lockstep::testing::TemporaryDirectory directory;
    TrainerOptions two = first;
    two.checkpoint = directory.path() / "c.safetensors";
    two.max_epochs = 1;
    train_ranks(2, "shm", "zero1", two);
    two.max_epochs = 2;
    two.resume = true;
    const StateDict resumed = train_ranks(second.ranks, second.backend, second.strategy, two).state;
    if (second.ranks == 2) {
      expect_equal_bits(resumed, whole);
    } else {
      EXPECT_LT(distance(resumed, whole), 0.01 * trained) << second.ranks << second.strategy;
    }
  }
}

TEST(Trainer, RefusesImpossibleOptions) {
  const auto make = [](TrainerOptions o) {
    Trainer(std::move(o), make_strategy("single", init_process_group()));
  };
  EXPECT_THROW(make({.max_epochs = 0}), ConfigError);
  EXPECT_THROW(make({.max_epochs = std::int64_t{1} << 60}), ConfigError);
  EXPECT_THROW(make({.max_steps = 0}), ConfigError);
  EXPECT_THROW(make({.gradient_clip_norm = 0}), ConfigError);
  EXPECT_THROW(make({.schedule = {.warmup_epochs = -1}}), ConfigError);
}

}  // namespace
}  // namespace lockstep
