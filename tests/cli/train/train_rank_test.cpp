// One rank of `lockstep train`, in this process.
#include <lockstep/cli/train/train_rank.h>

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/data/datasets/synthetic_digits.h>
#include <lockstep/launch/arrivals.h>
#include <lockstep/train/task/listener.h>

namespace lockstep::cli {
namespace {

class KeptReport final : public Listener {
 public:
  void on_run_end(const RunReport& report) override { report_ = report; }
  const RunReport& report() const { return report_; }

 private:
  RunReport report_{};
};

// The launcher ends a run whose ranks do not say that they have joined their group.
TEST(TrainRank, SaysThatItHasJoinedAndTrainsAsItsSettingsSay) {
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
  ASSERT_EQ(report.epochs.size(), 1U);
  EXPECT_EQ(report.epochs[0].steps, 2);
}

}  // namespace
}  // namespace lockstep::cli
