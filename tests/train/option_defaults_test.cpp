// The defaults of the options of training: a run that states nothing depends on them.
#include <lockstep/train/trainer.h>

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(TrainDefaults, OfTheTrainerLeaveEverythingOut) {
  const TrainerOptions run{};
  EXPECT_EQ(run.max_epochs, 1);
  EXPECT_EQ(run.min_epochs, 0);
  EXPECT_FALSE(run.max_steps || run.max_time_seconds || run.early_stopping);
  EXPECT_EQ(run.stop_request, nullptr);
  EXPECT_EQ(run.fast_dev_run, 0);
  EXPECT_FALSE(run.limit_train_batches || run.limit_val_batches || run.val_check_interval);
  EXPECT_EQ(run.overfit_batches, 0);
  EXPECT_EQ(run.accumulate_grad_batches, 1);
  EXPECT_EQ(run.check_val_every_n_epoch, 1);
  EXPECT_EQ(run.num_sanity_val_steps, 0);
  EXPECT_FALSE(run.gradient_clip_norm || run.gradient_clip_value || run.ema_decay);
  EXPECT_EQ(run.on_nan, OnNan::kWarn);
  EXPECT_EQ(run.precision, Precision::k32);
  EXPECT_TRUE(run.device.is_cpu());
  EXPECT_EQ(run.seed, 0U);
  EXPECT_FALSE(run.deterministic || run.detect_anomaly || run.cudnn_benchmark || run.cuda_graph);
  EXPECT_FALSE(run.matmul_precision);
  EXPECT_FALSE(run.resume);
  EXPECT_FALSE(run.overwrite);
  EXPECT_EQ(run.log_every_n_steps, 1);
  EXPECT_EQ(run.model_summary_depth, 0);
  EXPECT_EQ(run.log_histograms_every_n_steps, 0);
  EXPECT_EQ(run.profiler.kind, Profiler::kNone);
  EXPECT_EQ(run.profiler.trace_steps, 5);
  EXPECT_TRUE(run.trace.file.empty());
  EXPECT_EQ(run.trace.steps, 10);
  EXPECT_TRUE(run.checkpoints.directory.empty());
  EXPECT_EQ(run.checkpoints.every_n_train_steps, 0);
  EXPECT_EQ(run.checkpoints.keep_last, 2);
  EXPECT_EQ(run.checkpoints.save_top_k, 0);
  EXPECT_EQ(run.checkpoints.monitor, "loss");
  EXPECT_EQ(run.checkpoints.mode, MetricGoal::kMin);
  EXPECT_FALSE(run.checkpoints.background);
}

TEST(TrainDefaults, OfSchedulesAreThoseOfPyTorch) {
  const ScheduleOptions schedule{};
  EXPECT_EQ(schedule.kind, ScheduleKind::kConstant);
  EXPECT_EQ(schedule.warmup_epochs, 0);
  EXPECT_EQ(schedule.step_epochs, 1);
  EXPECT_EQ(schedule.gamma, 0.1);
  EXPECT_EQ(schedule.final_fraction, 0);
  EXPECT_TRUE(schedule.milestones.empty());
  EXPECT_EQ(schedule.pct_start, 0.3);
  EXPECT_EQ(schedule.div_factor, 25);
  EXPECT_EQ(schedule.final_div_factor, 1e4);
  EXPECT_EQ(schedule.anneal, Anneal::kCosine);
  EXPECT_FALSE(schedule.cycle_momentum);
  EXPECT_EQ(schedule.base_momentum, 0.85);
  EXPECT_EQ(schedule.max_momentum, 0.95);
  const PlateauOptions& plateau = schedule.plateau;
  EXPECT_EQ(plateau.monitor, "loss");
  EXPECT_EQ(plateau.mode, MetricGoal::kMin);
  EXPECT_EQ(plateau.factor, 0.1);
  EXPECT_EQ(plateau.patience, 10);
  EXPECT_EQ(plateau.threshold, 1e-4);
  EXPECT_EQ(plateau.threshold_mode, ThresholdMode::kRelative);
  EXPECT_EQ(plateau.cooldown, 0);
  EXPECT_EQ(plateau.min_lr, 0);
  EXPECT_EQ(plateau.eps, 1e-8);
}

TEST(TrainDefaults, OfEarlyStoppingAreThoseOfLightning) {
  const EarlyStoppingOptions stopping{};
  EXPECT_EQ(stopping.monitor, "loss");
  EXPECT_EQ(stopping.mode, MetricGoal::kMin);
  EXPECT_EQ(stopping.patience, 3);
  EXPECT_EQ(stopping.min_delta, 0);
  EXPECT_TRUE(stopping.check_finite);
}

}  // namespace
}  // namespace lockstep::train
