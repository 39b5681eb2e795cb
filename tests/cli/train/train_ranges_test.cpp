// The ranges of the numbers that `lockstep train` takes, and what it says outside of them.
#include <lockstep/cli/train/train_settings.h>

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

using RangeChange = std::function<void(TrainArguments&)>;

TrainArguments changed_arguments(const RangeChange& change) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  change(arguments);
  return arguments;
}

TEST(TrainRanges, AreNamedWithTheirOption) {
  const testing_support::TemporaryDirectory directory;
  const std::string out = (directory / "run").string();
  struct Case {
    RangeChange change;
    const char* expected;
  };
  const Case cases[] = {
      {[](auto& a) { a.optimizer.lr = -0.1; }, "--lr must be from 0 to "},
      {[](auto& a) { a.optimizer.lr = 2e6; }, "--lr must be from 0 to "},
      {[](auto& a) { a.optimizer.weight_decay = -1; }, "--weight-decay must be from 0 to "},
      {[](auto& a) { a.optimizer.weight_decay = 2e6; }, "--weight-decay must be from 0 to "},
      {[](auto& a) { a.optimizer.momentum = -0.1; }, "--momentum must be from 0 to 1, got -0.1"},
      {[](auto& a) { a.optimizer.momentum = 1.1; }, "--momentum must be from 0 to 1, got 1.1"},
      {[](auto& a) { a.optimizer.name = "adam", a.optimizer.betas = {-0.1, 0.9}; },
       "--betas must be from 0 to 1, got -0.1"},
      {[](auto& a) { a.optimizer.name = "adamw", a.optimizer.betas = {0.9, 1.1}; },
       "--betas must be from 0 to 1, got 1.1"},
      {[](auto& a) { a.optimizer.name = "adam", a.optimizer.eps = -1; },
       "--eps must be from 0 to "},
      {[](auto& a) {
         a.schedule = {.schedules = {"one-cycle"}, .cycle_momentum = true, .max_momentum = -0.1};
       },
       "--max-momentum must be from 0 to 0.9999, got -0.1"},
      {[](auto& a) {
         a.schedule = {.schedules = {"one-cycle"}, .cycle_momentum = true, .max_momentum = 1};
       },
       "--max-momentum must be from 0 to 0.9999, got 1"},
      {[](auto& a) {
         a.schedule = {.schedules = {"one-cycle"},
                       .cycle_momentum = true,
                       .base_momentum = 0.9,
                       .max_momentum = 0.75};
       },
       "--base-momentum must be from 0 to 0.75, got 0.9"},
      {[](auto& a) { a.schedule = {.schedules = {"one-cycle"}, .pct_start = -0.5}; },
       "--pct-start must be from 0 to 1, got -0.5"},
      {[](auto& a) { a.schedule = {.schedules = {"one-cycle"}, .pct_start = 1.5}; },
       "--pct-start must be from 0 to 1, got 1.5"},
      {[](auto& a) { a.schedule = {.schedules = {"one-cycle"}, .div_factor = 0}; },
       "--div-factor must be greater than 0, got 0"},
      {[](auto& a) { a.schedule = {.schedules = {"one-cycle"}, .final_div_factor = 0}; },
       "--final-div-factor must be greater than 0, got 0"},
      {[](auto& a) { a.schedule = {.schedules = {"step"}, .step_epochs = 0}; },
       "--step-epochs must be greater than 0, got 0"},
      {[](auto& a) { a.schedule = {.schedules = {"step"}, .gamma = 0}; },
       "--gamma must be greater than 0, got 0"},
      {[](auto& a) { a.schedule.warmup_epochs = -1; }, "--warmup-epochs must be from 0 to "},
      {[](auto& a) { a.schedule.warmup_epochs = 2e6; }, "--warmup-epochs must be from 0 to "},
      {[](auto& a) { a.limits.gradient_clip_val = 0; },
       "--gradient-clip-val must be greater than 0, got 0"},
      {[](auto& a) { a.limits.gradient_clip_norm = -1; },
       "--gradient-clip-norm must be greater than 0, got -1"},
      {[&](auto& a) { a.out = out, a.checkpoints.save_top_k = "loss:0"; },
       "the K of --save-top-k must be from 1 to "},
      {[&](auto& a) { a.out = out, a.checkpoints.keep_checkpoints = 0; },
       "--keep-checkpoints must be from 1 to "},
      {[&](auto& a) { a.out = out, a.checkpoints.every_n_train_steps = 0; },
       "--every-n-train-steps must be at least 1, got 0"},
      {[](auto& a) { a.batch_size = 0; }, "--batch-size must be from 1 to "},
      {[](auto& a) { a.workers = -1; }, "--workers must be from 0 to "},
      {[](auto& a) { a.threads = -1; }, "--threads must be from 0 to 4096, got -1"},
      {[](auto& a) { a.threads = 4097; }, "--threads must be from 0 to 4096, got 4097"},
      {[](auto& a) { a.timeout_seconds = 0; }, "--timeout must be from 0.1 to "},
      {[](auto& a) { a.strategy = "dp", a.devices = 0; }, "--devices must be from 1 to 256, got 0"},
      {[](auto& a) { a.strategy = "dp", a.devices = 257; },
       "--devices must be from 1 to 256, got 257"},
      {[](auto& a) {
         std::string weights = "1";
         for (int i = 1; i < 257; ++i) weights += ",1";
         a.strategy = "dp", a.device_weights = weights;
       },
       "the number of --device-weights must be from 1 to 256, got 257"},
      {[](auto& a) { a.nproc_per_node = 4, a.batch_size = 3; },
       "--batch-size 3 is smaller than the number of ranks, 4"},
      {[](auto& a) { a.nproc_per_node = 4, a.batch_size = 6; },
       "--batch-size 6 cannot be divided by 4 ranks; use 4 or 8"},
      {[](auto& a) { a.strategy = "hybrid", a.nproc_per_node = 4, a.batch_size = 1; },
       "--batch-size 1 is smaller than the number of pipelines, 2"},
      {[](auto& a) { a.strategy = "hybrid", a.nproc_per_node = 4, a.batch_size = 9; },
       "--batch-size 9 cannot be divided by 2 pipelines; use 8 or 10"},
  };
  for (const Case& each : cases) {
    const TrainArguments arguments = changed_arguments(each.change);
    EXPECT_THAT(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
                testing::StartsWith(std::string("train: ") + each.expected));
  }
}

TEST(TrainRanges, ContainTheirEnds) {
  const RangeChange changes[] = {
      [](auto& a) { a.optimizer.lr = 0, a.optimizer.weight_decay = 0; },
      [](auto& a) { a.optimizer.momentum = 0; },
      [](auto& a) {
        a.schedule = {.schedules = {"one-cycle"},
                      .cycle_momentum = true,
                      .base_momentum = 0.9999,
                      .max_momentum = 0.9999};
      },
      [](auto& a) { a.schedule = {.schedules = {"one-cycle"}, .pct_start = 1}; },
      [](auto& a) { a.schedule.warmup_epochs = 0; },
      [](auto& a) { a.batch_size = 1, a.workers = 0, a.threads = 4096, a.timeout_seconds = 0.1; },
      [](auto& a) { a.strategy = "dp", a.devices = 1; },
      [](auto& a) { a.nproc_per_node = 4, a.batch_size = 4; },
  };
  for (const RangeChange& change : changes) {
    EXPECT_NO_THROW(resolve(changed_arguments(change))) << &change - changes;
  }
}

}  // namespace
}  // namespace lockstep::cli
