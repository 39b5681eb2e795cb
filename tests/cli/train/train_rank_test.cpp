// One rank of `lockstep train`, in this process.
#include <lockstep/cli/train/train_rank.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/synthetic_digits.h>
#include <lockstep/data/loader/batch.h>
#include <lockstep/launch/arrivals.h>
#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/task.h>
#include <tests/support/captured_log.h>
#include <tests/support/colour_folder.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

class KeptReport final : public Listener {
 public:
  void on_run_end(const RunReport& report) override { report_ = report; }
  const RunReport& report() const { return report_; }

 private:
  RunReport report_{};
};

// Two steps on one processor.
TrainSettings settings_of_a_short_run() {
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.accelerator = "cpu";
  arguments.batch_size = 8;
  arguments.threads = 1;
  arguments.workers = 0;
  arguments.seed = 3;
  arguments.no_fused_kernels = true;
  arguments.limits.fast_dev_run = 2;
  TrainSettings settings = resolve(arguments);
  settings.quiet = true;
  return settings;
}

// The launcher ends a run whose ranks do not say that they have joined their group.
TEST(TrainRank, SaysThatItHasJoinedAndTrainsAsItsSettingsSay) {
  TrainSettings settings = settings_of_a_short_run();
  settings.started = Clock::now() - std::chrono::hours(1);
  KeptReport kept;
  settings.trainer.listeners = {&kept};
  // Never destroyed: the process may join further groups.
  static launch::Arrivals& arrivals = *new launch::Arrivals(1);
  arrivals.become(0);
  EXPECT_FALSE(arrivals.has_come(0));
  train_rank(settings, [](const LoadRequest& request) {
    EXPECT_TRUE(request.may_download);
    return recipes::RecipeData{
        .description = "a few digits",
        .train = make_synthetic_digits(Split::kTrain, {.count = 24}),
        .load_test = [] { return make_synthetic_digits(Split::kTest, {.count = 16}); },
        .fingerprint = "not used for a split of its own",
        .seconds_to_open = 100};
  });
  EXPECT_TRUE(arrivals.has_come(0));
  const RunReport& report = kept.report();
  const RunInfo& info = report.info;
  EXPECT_EQ(info.recipe, "mnist");
  EXPECT_EQ(info.strategy, "single");
  EXPECT_EQ(info.backend, "none");
  EXPECT_EQ(info.loader, "native");
  EXPECT_EQ(info.precision, "32");
  EXPECT_EQ(info.device, "cpu");
  EXPECT_EQ(info.dataset, "a few digits");
  EXPECT_EQ(info.split, "");
  EXPECT_FALSE(info.fused_kernels);
  EXPECT_EQ(info.world_size, 1);
  EXPECT_EQ(info.threads_per_rank, 1);
  EXPECT_EQ(info.global_batch, 8);
  EXPECT_EQ(info.weights, "");
  EXPECT_EQ(info.provenance.at("augmentation"), "Normalize(mean 0.1307, std 0.3081)");
  EXPECT_EQ(info.provenance.at("mix"), "none");
  EXPECT_EQ(info.provenance.at("split"), "the data set's own split, 24 training images");
  EXPECT_EQ(info.provenance.at("image_size"), "28x28");
  EXPECT_GE(info.setup.loader, 100) << "the time to open the data belongs to it";
  EXPECT_GE(report.seconds_to_first_step, 3600) << "the command began an hour ago";
  EXPECT_GE(report.seconds_total, report.seconds_to_first_step);
  ASSERT_EQ(report.epochs.size(), 1U);
  EXPECT_EQ(report.epochs[0].steps, 2);
}

class KeptSteps final : public Listener {
 public:
  void on_step(const StepReport& report) override { losses_[report.epoch].push_back(report.loss); }
  void on_run_end(const RunReport& report) override { report_ = report; }
  const std::vector<double>& losses(std::int64_t epoch) { return losses_[epoch]; }
  const RunReport& report() const { return report_; }

 private:
  std::map<std::int64_t, std::vector<double>> losses_;
  RunReport report_{};
};

// An auto-encoder that learns nothing, on 10 images in batches of 2, and 4 images to validate on.
class UntaughtRun {
 public:
  explicit UntaughtRun(int classes = 1) {
    TrainArguments arguments;
    arguments.recipe = "autoencoder";
    arguments.of_recipe.image_size = 20;
    arguments.accelerator = "cpu";
    arguments.batch_size = 2;
    arguments.max_epochs = 2;
    arguments.threads = 1;
    arguments.workers = 0;
    arguments.optimizer.lr = 0;
    settings_ = resolve(arguments);
    settings_.quiet = true;
    settings_.trainer.listeners = {&kept_};
    testing_support::write_colours(folder_, "train", 10, classes);
    testing_support::write_colours(folder_, "val", 4, classes, /*first=*/20);
  }

  TrainSettings& settings() { return settings_; }
  KeptSteps& run() {
    train_rank(settings_, [this](const LoadRequest&) {
      return recipes::RecipeData{
          .description = "a few colours",
          .train = load_image_folder(folder_ / "train"),
          .load_test = [this] { return load_image_folder(folder_ / "val"); }};
    });
    return kept_;
  }

 private:
  testing_support::TemporaryDirectory folder_;
  KeptSteps kept_;
  TrainSettings settings_;
};

TEST(TrainRank, ShufflesTheImagesAnewInEachEpochAndTrainsOnEachOnce) {
  UntaughtRun run;
  KeptSteps& kept = run.run();
  const RunReport& report = kept.report();
  ASSERT_EQ(report.epochs.size(), 2U);
  EXPECT_EQ(kept.losses(1).size(), 5U);
  EXPECT_EQ(kept.losses(2).size(), 5U);
  EXPECT_NE(kept.losses(1), kept.losses(2)) << "other images are together";
  EXPECT_NEAR(report.epochs[0].train_loss, report.epochs[1].train_loss, 1e-6);
  ASSERT_TRUE(report.test.has_value());
  EXPECT_EQ(report.test->samples, 4);
  EXPECT_EQ(report.epochs[0].test->loss, report.epochs[1].test->loss);
  EXPECT_EQ(report.info.provenance.at("split"), "the data set's own split, 10 training images");
  EXPECT_FALSE(report.info.provenance.contains("image_size")) << "it is an option of the recipe";
  EXPECT_EQ(report.info.recipe_options.at("image_size"), "20");
}

// A trial writes only what names a file of its own.
TEST(TrainRank, KeepsNothingOfAFastDevRun) {
  const testing_support::TemporaryDirectory scratch;
  UntaughtRun run;
  run.settings().out = scratch.path();
  run.settings().json = scratch / "report.json";
  run.settings().trainer.fast_dev_run = 1;
  const RunReport& report = run.run().report();
  ASSERT_EQ(report.epochs.size(), 1U);
  EXPECT_EQ(report.epochs[0].steps, 1);
  ASSERT_TRUE(report.test.has_value()) << "there is something to draw";
  EXPECT_THAT(scratch.names(), testing::ElementsAre("report.json"));
}

// The images to validate on have ten times the deviation, and thus an error a hundred times as
// large.
TEST(TrainRank, PreparesEachPartByItsOwnOperators) {
  UntaughtRun run;
  const auto recipe = std::make_shared<recipes::Recipe>(*run.settings().recipe);
  recipe->test_augmentation.back() = Normalize{{0, 0, 0}, {0.1, 0.1, 0.1}};
  run.settings().recipe = recipe;
  const RunReport report = run.run().report();
  EXPECT_GT(report.test->loss, 20 * report.epochs[0].train_loss);
}

// What a task was made from, and the last batches that it got.
struct SeenByTask {
  recipes::TaskOptions options{};
  std::vector<torch::Tensor> parameters{};
  std::vector<torch::Tensor> initial{};  // values of the parameters
  Batch train{};
  Batch test{};
};

// Passes everything on to another task, and keeps it.
class WatchedTask final : public Task {
 public:
  WatchedTask(std::unique_ptr<Task> inner, SeenByTask& seen)
      : inner_(std::move(inner)), seen_(seen) {
    seen_.parameters = inner_->module().parameters();
    for (const torch::Tensor& each : seen_.parameters) seen_.initial.push_back(each.clone());
  }
  torch::nn::Module& module() override { return inner_->module(); }
  torch::Tensor training_step(const Batch& batch) override {
    seen_.train = batch;
    return inner_->training_step(batch);
  }
  void evaluation_step(const Batch& batch, Metrics& metrics) override {
    seen_.test = batch;
    inner_->evaluation_step(batch, metrics);
  }
  std::vector<MetricPtr> metrics() override { return inner_->metrics(); }

 private:
  std::unique_ptr<Task> inner_;
  SeenByTask& seen_;
};

// Runs with a recipe whose task is watched. A process can join its group only once, so each test
// has one run.
SeenByTask seen_in(UntaughtRun& run) {
  SeenByTask seen;
  const auto recipe = std::make_shared<recipes::Recipe>(*run.settings().recipe);
  recipe->make_task = [&seen, make = recipe->make_task](const recipes::TaskOptions& options) {
    seen.options = options;
    return std::make_unique<WatchedTask>(make(options), seen);
  };
  run.settings().recipe = recipe;
  run.run();
  return seen;
}

// Whether the channels of a pixel are neighbours in memory, of tensors in which that differs from
// the usual order.
bool is_by_pixels(const torch::Tensor& tensor) {
  return tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_contiguous();
}

// The weights of convolutions with several channels and more than one pixel.
std::vector<torch::Tensor> kernels_of(const SeenByTask& seen) {
  std::vector<torch::Tensor> kernels;
  for (const torch::Tensor& each : seen.parameters) {
    if (each.dim() == 4 && each.size(1) > 1 && each.size(2) > 1) kernels.push_back(each);
  }
  return kernels;
}

TEST(TrainRank, GivesTheTaskImagesByPixelsAndTheSeed) {
  UntaughtRun run(/*classes=*/2);
  ASSERT_TRUE(run.settings().channels_last) << "by default";
  run.settings().seed = 5;
  const SeenByTask seen = seen_in(run);
  EXPECT_EQ(seen.options.num_classes, 2);
  EXPECT_FALSE(seen.options.fused_kernels) << "the recipe has none";
  EXPECT_EQ(seen.train.size, 2);
  EXPECT_EQ(seen.test.size, 2);
  EXPECT_EQ(seen.train.labels.dim(), 1) << "nothing is mixed";
  EXPECT_EQ(seen.train.images.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(is_by_pixels(seen.train.images));
  EXPECT_TRUE(is_by_pixels(seen.test.images));
  const std::vector<torch::Tensor> kernels = kernels_of(seen);
  ASSERT_FALSE(kernels.empty());
  for (const torch::Tensor& each : kernels) EXPECT_TRUE(is_by_pixels(each)) << each.sizes();
  torch::manual_seed(5);
  const auto other = recipes::find_recipe("autoencoder").make_task({});
  const std::vector<torch::Tensor> expected = other->module().parameters();
  ASSERT_EQ(expected.size(), seen.initial.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(seen.initial[i].equal(expected[i])) << i;
    EXPECT_TRUE(seen.parameters[i].equal(expected[i])) << i << ": a learning rate of 0";
  }
}

TEST(TrainRank, GivesTheTaskImagesByChannelsInItsPrecision) {
  const testing_support::CapturedLog log;  // may say that the precision is slow
  UntaughtRun run;
  run.settings().channels_last = false;
  run.settings().precision = Precision::kBf16;
  run.settings().mix = MixUp{};
  const SeenByTask seen = seen_in(run);
  EXPECT_EQ(seen.train.images.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(seen.test.images.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(seen.train.images.is_contiguous());
  EXPECT_TRUE(seen.test.images.is_contiguous());
  EXPECT_EQ(seen.train.labels.dim(), 2) << "mixed";
  EXPECT_EQ(seen.test.labels.dim(), 1) << "only images to train on are mixed";
  for (const torch::Tensor& each : kernels_of(seen)) {
    EXPECT_TRUE(each.is_contiguous()) << each.sizes();
  }
}

// A process can join its group only once, so each test has one run.
RunInfo info_in(Precision precision, bool fused_kernels,
                std::optional<double> validation_fraction = {}) {
  const testing_support::CapturedLog log;
  TrainSettings settings = settings_of_a_short_run();
  settings.precision = precision;
  settings.fused_kernels = fused_kernels;
  settings.of_recipe.validation_fraction = validation_fraction;
  KeptReport kept;
  settings.trainer.listeners = {&kept};
  train_rank(settings, [](const LoadRequest&) {
    return recipes::RecipeData{
        .description = "a few digits",
        .train = make_synthetic_digits(Split::kTrain, {.count = 24}),
        .load_test = [] { return make_synthetic_digits(Split::kTest, {.count = 16}); },
        .fingerprint = "abc",
        .is_split_at_random = true};
  });
  return kept.report().info;
}

TEST(TrainRank, SaysThatThePrecisionDisablesTheFusedKernels) {
  const RunInfo half = info_in(Precision::kBf16, true);
  EXPECT_TRUE(half.precision_disables_kernels);
  EXPECT_FALSE(half.fused_kernels);
}

TEST(TrainRank, SaysThatFloat32HasTheFusedKernels) {
  const RunInfo single = info_in(Precision::k32, true);
  EXPECT_FALSE(single.precision_disables_kernels);
  EXPECT_TRUE(single.fused_kernels);
  EXPECT_EQ(single.split, "abc") << "a split at random must be repeated when the run resumes";
  EXPECT_EQ(single.provenance.at("split"),
            "random with seed 3, validation fraction 0.2, 24 training images");
}

TEST(TrainRank, BlamesThePrecisionForNoKernelsThatAFlagDisables) {
  const RunInfo info = info_in(Precision::kBf16, false, /*validation_fraction=*/0.375);
  EXPECT_FALSE(info.precision_disables_kernels);
  EXPECT_EQ(info.provenance.at("split"),
            "random with seed 3, validation fraction 0.375, 24 training images");
}

// Warnings of LibTorch and its profiler would stand between the lines of the run.
TEST(TrainRank, SilencesLibTorchUnlessDebugMessagesAreLogged) {
  constexpr int kWarnings = 1, kErrors = 2;  // severities of LibTorch's log
  const testing_support::CapturedLog log;
  testing_support::ScopedEnvironment environment;
  const int before = FLAGS_caffe2_log_level;
  const TrainSettings settings = settings_of_a_short_run();
  const DataSupplier no_data = [](const LoadRequest&) -> recipes::RecipeData {
    throw DataError("no data");
  };
  const auto begin_run = [&](LogLevel level, const std::optional<std::string>& profiler) {
    set_log_level(level);
    FLAGS_caffe2_log_level = kWarnings;
    environment.set("KINETO_LOG_LEVEL", profiler);
    EXPECT_THROW(train_rank(settings, no_data), Error);  // a process joins only once
  };
  begin_run(LogLevel::kInfo, std::nullopt);
  EXPECT_EQ(FLAGS_caffe2_log_level, kErrors);
  EXPECT_EQ(environment_string("KINETO_LOG_LEVEL"), "6");
  begin_run(LogLevel::kInfo, "3");
  EXPECT_EQ(environment_string("KINETO_LOG_LEVEL"), "3") << "the user's own";
  begin_run(LogLevel::kDebug, std::nullopt);
  EXPECT_EQ(FLAGS_caffe2_log_level, kWarnings);
  EXPECT_EQ(environment_string("KINETO_LOG_LEVEL"), std::nullopt);
  FLAGS_caffe2_log_level = before;
  set_log_level(LogLevel::kWarning);
}

}  // namespace
}  // namespace lockstep::cli
