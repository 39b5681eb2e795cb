// Which options of `lockstep train` fit together, and what those that were given last replace.
#include <lockstep/cli/train/train_limits.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/cli/train/train_settings.h>
#include <lockstep/core/error.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/preparation/pack_images.h>
#include <tests/support/colour_folder.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

const char* const kNothingThrown = "nothing was thrown";

class TrainLimits : public ::testing::Test {
 protected:
  TrainLimits() { arguments_.recipe = "cifar10"; }

  std::string refusal() const {
    return testing_support::message_of<ConfigError>([&] { resolve(arguments_); });
  }
  std::string in_folder(const std::string& name) const { return (folder_ / name).string(); }

  testing_support::TemporaryDirectory folder_;
  TrainArguments arguments_;
};

TEST_F(TrainLimits, OfATraceAreItsSteps) {
  arguments_.out = in_folder("run");
  EXPECT_TRUE(resolve(arguments_).trainer.trace.file.empty());
  arguments_.limits.trace = true;
  TrainerOptions trainer = resolve(arguments_).trainer;
  EXPECT_EQ(trainer.trace.file, folder_ / "run/trace.json");
  EXPECT_EQ(trainer.trace.steps, 10);
  EXPECT_EQ(trainer.profiler.trace_steps, 5);
  EXPECT_TRUE(trainer.profiler.trace_file.empty());
  arguments_.limits.profiler = "trace";
  arguments_.limits.trace_steps = 4;
  trainer = resolve(arguments_).trainer;
  EXPECT_EQ(trainer.trace.steps, 4);
  EXPECT_EQ(trainer.profiler.trace_steps, 4) << "the number is for both";
  EXPECT_EQ(trainer.profiler.trace_file, folder_ / "run/operations.json");
  const auto with_steps = [&](std::int64_t steps) {
    arguments_.limits.trace_steps = steps;
    return refusal();
  };
  for (const std::int64_t steps : {1, 100}) EXPECT_EQ(with_steps(steps), kNothingThrown);
  EXPECT_EQ(with_steps(101), "train: --trace-steps must be from 1 to 100, got 101");
  EXPECT_EQ(with_steps(0), "train: --trace-steps must be at least 1, got 0");
  arguments_.limits.trace = false;
  EXPECT_EQ(with_steps(101), kNothingThrown) << "the profiler has no limit";
  trainer = resolve(arguments_).trainer;
  EXPECT_EQ(trainer.profiler.trace_steps, 101);
  EXPECT_EQ(trainer.trace.steps, 10) << "its default";
  EXPECT_TRUE(trainer.trace.file.empty());
  arguments_.limits.profiler = "none";
  EXPECT_EQ(with_steps(1), "train: --trace-steps belongs to --trace and --profiler trace");
}

TEST_F(TrainLimits, OfTheRunHaveTheirEnds) {
  struct Case {
    std::function<void(TrainArguments&, double)> change;
    std::string range;
    double inside[2];
    std::pair<double, const char*> outside[2];
  };
  const auto whole = [](double number) { return static_cast<std::int64_t>(number); };
  const Case cases[] = {
      {[&](auto& a, double n) { a.max_epochs = whole(n); },
       "--max-epochs must be from 1 to 1000000000",
       {1, 1e9},
       {{0, "0"}, {-1, "-1"}}},
      {[&](auto& a, double n) { a.accumulate_grad_batches = whole(n); },
       "--accumulate-grad-batches must be from 1 to 1000000000",
       {1, 1e9},
       {{0, "0"}, {-1, "-1"}}},
      {[&](auto& a, double n) { a.timeout_seconds = n; },
       "--timeout must be from 0.1 to 1000000",
       {0.1, 1e6},
       {{0.09, "0.09"}, {2e6, "2000000"}}},
      {[&](auto& a, double n) { a.shutdown_timeout_seconds = n; },
       "--shutdown-timeout must be from 0.1 to 1000000",
       {0.1, 1e6},
       {{0.09, "0.09"}, {2e6, "2000000"}}},
      {[&](auto& a, double n) { a.limits.fast_dev_run = whole(n); },
       "--fast-dev-run must be at least 1",
       {1, 1e9},
       {{0, "0"}, {-1, "-1"}}},
      {[&](auto& a, double n) { a.limits.model_summary = static_cast<int>(n); },
       "--model-summary must be at least -1",
       {-1, 50},
       {{-2, "-2"}, {-3, "-3"}}},
      {[&](auto& a, double n) { a.limits.ema_decay = n; },
       "--ema-decay must be from 0 to 1",
       {0, 1},
       {{-0.5, "-0.5"}, {1.5, "1.5"}}},
  };
  arguments_.out = in_folder("run");
  const TrainArguments usual = arguments_;
  for (const Case& each : cases) {
    for (const double number : each.inside) {
      each.change(arguments_, number);
      EXPECT_EQ(refusal(), kNothingThrown) << each.range << ", " << number;
    }
    for (const auto& [number, text] : each.outside) {
      each.change(arguments_, number);
      EXPECT_EQ(refusal(), "train: " + each.range + ", got " + text);
    }
    arguments_ = usual;
  }
}

// Rank 0 sees the whole model unless stages are on several ranks.
TEST_F(TrainLimits, OfOptionsThatNeedTheWholeModelArePipelinesOfRanks) {
  struct Case {
    std::string strategy;
    int ranks;
    bool divides;
  };
  const Case cases[] = {{"single", 1, false}, {"dp", 1, false},       {"ddp", 2, false},
                        {"zero1", 2, false},  {"pipeline", 1, false}, {"pipeline", 2, true},
                        {"hybrid", 2, true},  {"hybrid", 4, true}};
  for (const Case& each : cases) {
    const std::string given = "--strategy " + each.strategy + " divides it among the ranks; use ";
    arguments_ = {.recipe = "cifar10", .strategy = each.strategy, .nproc_per_node = each.ranks};
    arguments_.limits.ema_decay = 0.5;
    EXPECT_EQ(refusal(), each.divides
                             ? "train: --ema-decay averages the whole model on each rank, but " +
                                   given + "--strategy ddp or zero1, or a pipeline in one process"
                             : kNothingThrown)
        << each.strategy << each.ranks;
    arguments_.limits.ema_decay.reset();
    arguments_.limits.log_histograms_every_n_steps = 3;
    arguments_.logger = "csv";
    arguments_.log_dir = in_folder("logs");
    EXPECT_EQ(
        refusal(),
        each.divides
            ? "train: --log-histograms-every-n-steps looks at the whole model on rank 0, but " +
                  given + "--strategy ddp, or a pipeline in one process"
            : kNothingThrown)
        << each.strategy << each.ranks;
    arguments_.limits.log_histograms_every_n_steps.reset();
    EXPECT_EQ(refusal(), kNothingThrown) << each.strategy << each.ranks;
  }
}

TEST_F(TrainLimits, OfGradientsAreNormsOrValues) {
  const auto clipping = [&](std::optional<double> norm, std::optional<double> value,
                            const std::optional<std::string>& algorithm) {
    arguments_.limits = {.gradient_clip_norm = norm,
                         .gradient_clip_val = value,
                         .gradient_clip_algorithm = algorithm};
    const TrainerOptions trainer = resolve(arguments_).trainer;
    return std::pair(trainer.gradient_clip_norm, trainer.gradient_clip_value);
  };
  using Both = std::pair<std::optional<double>, std::optional<double>>;
  EXPECT_EQ(clipping({}, {}, {}), Both({}, {}));
  EXPECT_EQ(clipping(2, {}, {}), Both(2, {}));
  EXPECT_EQ(clipping({}, 3, {}), Both(3, {})) << "a norm by default";
  EXPECT_EQ(clipping({}, 3, "norm"), Both(3, {}));
  EXPECT_EQ(clipping({}, 3, "value"), Both({}, 3));
  EXPECT_EQ(clipping(2, 3, "value"), Both(2, 3));
  arguments_.limits = {.gradient_clip_norm = 2, .gradient_clip_algorithm = "norm"};
  EXPECT_EQ(refusal(), "train: --gradient-clip-algorithm belongs to --gradient-clip-val");
  arguments_.limits = {.gradient_clip_val = -1, .gradient_clip_algorithm = "value"};
  EXPECT_EQ(refusal(), "train: --gradient-clip-val must be greater than 0, got -1");
}

TEST_F(TrainLimits, WatchAValueInItsDirection) {
  const auto watched = [&](const std::string& text) {
    arguments_.limits.early_stopping = text;
    return *resolve(arguments_).trainer.early_stopping;
  };
  struct Case {
    const char* text;
    const char* monitor;
    MetricGoal mode;
  };
  const Case cases[] = {{"loss:2", "loss", MetricGoal::kMin},
                        {"train_loss:2", "train_loss", MetricGoal::kMin},
                        {"loss:2:max", "loss", MetricGoal::kMax},
                        {"accuracy:2:max", "accuracy", MetricGoal::kMax},
                        {"psnr:2:min", "psnr", MetricGoal::kMin}};
  for (const Case& each : cases) {
    const EarlyStoppingOptions stopping = watched(each.text);
    EXPECT_EQ(stopping.monitor, each.monitor);
    EXPECT_EQ(stopping.patience, 2) << each.text;
    EXPECT_EQ(stopping.mode, each.mode) << each.text;
  }
  EXPECT_EQ(watched("loss:9223372036854775807").patience, 9223372036854775807);
  arguments_.limits.early_stopping = "loss:9223372036854775808";
  EXPECT_THAT(refusal(), testing::StartsWith("train: --early-stopping must be METRIC:PATIENCE"));
  // A patience of 0 suits a schedule: the learning rate falls at the first bad evaluation.
  arguments_.limits.early_stopping.reset();
  arguments_.schedule = {.schedules = {"plateau"}, .plateau = "loss:0"};
  EXPECT_EQ(resolve(arguments_).trainer.schedule.plateau.patience, 0);
  arguments_.schedule = {.schedules = {"plateau"}};
  const PlateauOptions usual = resolve(arguments_).trainer.schedule.plateau;
  EXPECT_EQ(usual.monitor, "loss");
  EXPECT_EQ(usual.patience, 10);
  EXPECT_EQ(usual.factor, 0.1);
  EXPECT_EQ(usual.mode, MetricGoal::kMin);
}

// The options of image files need files.
TEST_F(TrainLimits, OfImageFilesNeedAFolderOfThem) {
  struct Case {
    const char* option;
    std::function<void(TrainArguments&)> change;
  };
  const Case cases[] = {{"--max-image-pixels", [](auto& a) { a.max_image_pixels = 9; }},
                        {"--decoding", [](auto& a) { a.decoding = "scaled"; }},
                        {"--exif-transpose", [](auto& a) { a.exif_transpose = true; }}};
  testing_support::write_colours(folder_, "photos", 4, 2);
  pack_images(load_image_folder(folder_ / "photos"), folder_ / "pixels.pack");
  pack_images(load_image_folder(folder_ / "photos"), folder_ / "files.pack", {.keep_files = true});
  for (const auto& [option, change] : cases) {
    const std::string name = option;
    arguments_ = {.recipe = "classify"};
    change(arguments_);
    const std::string begin = "train: " + name + " has no effect on ";
    EXPECT_EQ(refusal(), begin +
                             "classify without --data DIR, a folder of images; add --data or "
                             "remove " +
                             name);
    arguments_.data = in_folder("pixels.pack");
    EXPECT_EQ(refusal(), begin + in_folder("pixels.pack") +
                             ", which holds decoded images; remove " + name +
                             ", or pack files with `lockstep data pack --encoded`");
    for (const char* files : {"photos", "files.pack"}) {
      arguments_.data = in_folder(files);
      EXPECT_EQ(refusal(), kNothingThrown) << files;
    }
    arguments_.recipe = "cifar10";
    EXPECT_EQ(refusal(), begin + "cifar10, which reads no folder of images; remove " + name);
  }
}

// A pack can be split and cached by any recipe; other loaders have no use for a cache.
TEST_F(TrainLimits, OfSplitsAndCachesFollowTheData) {
  folder_.write("a.pack", "any file is taken for a pack here");
  arguments_.data = in_folder("a.pack");
  arguments_.of_recipe = {.val_fraction = 0.5, .cache = "2MB"};
  const TrainSettings settings = resolve(arguments_);
  EXPECT_EQ(settings.of_recipe.validation_fraction, 0.5);
  EXPECT_EQ(settings.of_recipe.cache_bytes, 2'000'000);
  arguments_.data = folder_.path().string();
  EXPECT_THAT(refusal(), testing::StartsWith("train: --val-fraction has no effect on cifar10 "
                                             "unless --data is a pack"));
  arguments_ = {.recipe = "classify", .of_recipe = {.cache = "2MB"}, .data = "photos"};
  EXPECT_EQ(refusal(), kNothingThrown);
  for (const std::string loader : {"cuda", "dali"}) {
    arguments_.loader = loader;
    arguments_.of_recipe.cache = "2MB";
    EXPECT_EQ(refusal(), "train: --cache belongs to --loader native, got --loader " + loader +
                             "; remove one of them");
    arguments_.of_recipe.cache = "none";
    EXPECT_EQ(refusal(), kNothingThrown);
    arguments_.of_recipe.cache.reset();
    EXPECT_EQ(refusal(), kNothingThrown);
  }
}

}  // namespace
}  // namespace lockstep::cli
