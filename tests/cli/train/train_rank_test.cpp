// One rank of `lockstep train`, in this process.
#include <lockstep/cli/train/train_rank.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <c10/util/Logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/data/datasets/synthetic_digits.h>
#include <lockstep/launch/arrivals.h>
#include <lockstep/train/task/listener.h>
#include <tests/support/captured_log.h>
#include <tests/support/scoped_environment.h>

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
  EXPECT_GE(info.setup.loader, 100) << "the time to open the data belongs to it";
  EXPECT_GE(report.seconds_to_first_step, 3600) << "the command began an hour ago";
  EXPECT_GE(report.seconds_total, report.seconds_to_first_step);
  ASSERT_EQ(report.epochs.size(), 1U);
  EXPECT_EQ(report.epochs[0].steps, 2);
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
    EXPECT_THROW(train_rank(settings, no_data), DataError);
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
