// The ranges of the numbers that `lockstep train` takes, and what it says outside of them.
#include <lockstep/cli/train/train_settings.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/train/optimization/schedule.h>
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
      {[](auto& a) { a.limits.gradient_clip_val = 1, a.limits.gradient_clip_algorithm = "max"; },
       "--gradient-clip-algorithm must be one of norm, value, got 'max'"},
      {[](auto& a) { a.limits.gradient_clip_val = a.limits.gradient_clip_norm = 1; },
       "--gradient-clip-norm and --gradient-clip-val cannot be combined, unless "
       "--gradient-clip-algorithm is value"},
      {[](auto& a) {
         a.limits.gradient_clip_val = a.limits.gradient_clip_norm = 1;
         a.limits.gradient_clip_algorithm = "norm";
       },
       "--gradient-clip-norm and --gradient-clip-val cannot be combined, unless "
       "--gradient-clip-algorithm is value"},
      {[](auto& a) { a.limits.gradient_clip_algorithm = "value"; },
       "--gradient-clip-algorithm belongs to --gradient-clip-val"},
      {[](auto& a) { a.limits.min_epochs = -1; }, "--min-epochs must be from 0 to "},
      {[](auto& a) { a.max_epochs = 3, a.limits.min_epochs = 4; },
       "--min-epochs must be from 0 to 3, got 4"},
      {[](auto& a) { a.limits.max_steps = 0; }, "--max-steps must be at least 1, got 0"},
      {[](auto& a) { a.limits.fast_dev_run = 0; }, "--fast-dev-run must be at least 1, got 0"},
      {[](auto& a) { a.limits.limit_train_batches = 0; },
       "--limit-train-batches must be at least 1, got 0"},
      {[](auto& a) { a.limits.overfit_batches = 0; },
       "--overfit-batches must be at least 1, got 0"},
      {[](auto& a) { a.limits.limit_val_batches = -1; },
       "--limit-test-batches must be at least 0, got -1"},
      {[](auto& a) { a.limits.check_val_every_n_epoch = 0; },
       "--check-val-every-n-epoch must be at least 1, got 0"},
      {[](auto& a) { a.limits.val_check_interval = 0; },
       "--val-check-interval must be at least 1, got 0"},
      {[](auto& a) { a.limits.num_sanity_val_steps = -1; },
       "--num-sanity-val-steps must be at least 0, got -1"},
      {[](auto& a) { a.limits.log_every_n_steps = 0; },
       "--log-every-n-steps must be at least 1, got 0"},
      {[](auto& a) { a.limits.log_histograms_every_n_steps = 0; },
       "--log-histograms-every-n-steps must be at least 1, got 0"},
      {[](auto& a) { a.limits.ema_decay = 1.5; }, "--ema-decay must be from 0 to 1, got 1.5"},
      {[](auto& a) { a.limits.early_stopping = "loss:0"; },
       "the patience of --early-stopping must be at least 1, got 0"},
      {[&](auto& a) { a.out = out, a.checkpoints.save_top_k = "loss:0"; },
       "the K of --save-top-k must be from 1 to "},
      {[&](auto& a) { a.out = out, a.checkpoints.keep_checkpoints = 0; },
       "--keep-checkpoints must be from 1 to "},
      {[&](auto& a) { a.out = out, a.checkpoints.every_n_train_steps = 0; },
       "--every-n-train-steps must be at least 1, got 0"},
      {[](auto& a) { a.batch_size = 0; }, "--batch-size must be from 1 to "},
      {[](auto& a) { a.recipe = "classify", a.data = "photos", a.max_image_pixels = 0; },
       "--max-image-pixels must be from 1 to "},
      {[](auto& a) { a.workers = -1; }, "--workers must be from 0 to "},
      {[](auto& a) { a.threads = -1; }, "--threads must be from 0 to 4096, got -1"},
      {[](auto& a) { a.threads = 4097; }, "--threads must be from 0 to 4096, got 4097"},
      {[](auto& a) { a.timeout_seconds = 0; }, "--timeout must be from 0.1 to "},
      {[&](auto& a) { a.out = out, a.shutdown_timeout_seconds = 0; },
       "--shutdown-timeout must be from 0.1 to "},
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
      {[](auto& a) { a.nproc_per_node = 0; }, "--nproc-per-node must be from 1 to 1024, got 0"},
      {[](auto& a) { a.nproc_per_node = 1025; },
       "--nproc-per-node must be from 1 to 1024, got 1025"},
      {[](auto& a) { a.workers = (1 << 20) + 1; }, "--workers must be from 0 to "},
      {[](auto& a) { a.bucket_cap_mb = 0, a.nproc_per_node = 2; },
       "--bucket-cap-mb must be greater than 0, got 0"},
      {[](auto& a) { a.strategy = "pipeline", a.micro_batches = 0; },
       "--micro-batches must be from 1 to 65536, got 0"},
      {[](auto& a) { a.strategy = "pipeline", a.micro_batches = 65537; },
       "--micro-batches must be from 1 to 65536, got 65537"},
      {[](auto& a) { a.strategy = "pipeline", a.micro_batches = 5, a.batch_size = 4; },
       "--batch-size 4 gives each pipeline 4 samples, fewer than --micro-batches 5"},
      {[](auto& a) {
         a.strategy = "hybrid", a.nproc_per_node = 4, a.batch_size = 8, a.micro_batches = 5;
       },
       "--batch-size 8 gives each pipeline 4 samples, fewer than --micro-batches 5"},
      {[](auto& a) { a.strategy = "dp", a.dp_loss = "each"; }, "--dp-loss must be one of "},
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
      [](auto& a) { a.nproc_per_node = 1024, a.batch_size = 1024; },
      [](auto& a) { a.workers = 1 << 20; },
      [](auto& a) { a.strategy = "pipeline", a.micro_batches = 1; },
      [](auto& a) { a.strategy = "pipeline", a.micro_batches = 4, a.batch_size = 4; },
      [](auto& a) { a.strategy = "pipeline", a.micro_batches = 65536, a.batch_size = 65536; },
      [](auto& a) { a.limits.min_epochs = 0, a.limits.max_steps = 1; },
      [](auto& a) { a.max_epochs = 3, a.limits.min_epochs = 3; },
      [](auto& a) { a.limits.limit_val_batches = 0, a.limits.num_sanity_val_steps = 0; },
      [](auto& a) { a.limits.ema_decay = 1, a.limits.early_stopping = "loss:1"; },
  };
  for (const RangeChange& change : changes) {
    EXPECT_NO_THROW(resolve(changed_arguments(change))) << &change - changes;
  }
}

template <class Options>
concept HasBetas = requires(const Options& options) { options.beta1 + options.beta2; };

// A zero is a number like any other, and not the absence of one.
TEST(TrainRanges, HaveZeroWhereItIsGiven) {
  struct Case {
    RangeChange change;
    const char* what;
    std::function<double(const TrainSettings&)> value;
  };
  const auto rate = [](const TrainSettings& s) {
    return std::visit([](const auto& each) { return each.lr; }, s.trainer.optimizer);
  };
  const auto decay = [](const TrainSettings& s) {
    return std::visit([](const auto& each) { return each.weight_decay; }, s.trainer.optimizer);
  };
  const auto betas = [](const TrainSettings& s) {
    return std::visit(
        [](const auto& each) {
          if constexpr (HasBetas<decltype(each)>) return each.beta1 + each.beta2;
          return -1.0;
        },
        s.trainer.optimizer);
  };
  const Case cases[] = {
      {[](auto& a) { a.optimizer.lr = 0; }, "--lr", rate},
      {[](auto& a) { a.optimizer.name = "adam", a.optimizer.lr = 0; }, "--lr of adam", rate},
      {[](auto& a) { a.optimizer.weight_decay = 0; }, "--weight-decay", decay},
      {[](auto& a) { a.recipe = "classify", a.data = "photos", a.optimizer.weight_decay = 0; },
       "--weight-decay of classify", decay},
      {[](auto& a) { a.recipe = "resnet50-split", a.optimizer.weight_decay = 0; },
       "--weight-decay of resnet50-split", decay},
      {[](auto& a) { a.optimizer.name = "adamw", a.optimizer.weight_decay = 0; },
       "--weight-decay of adamw", decay},
      {[](auto& a) { a.optimizer.momentum = 0; }, "--momentum",
       [](const auto& s) { return std::get<SgdOptions>(s.trainer.optimizer).momentum; }},
      {[](auto& a) { a.optimizer.name = "adamw", a.optimizer.betas = {0, 0}; }, "--betas", betas},
      {[](auto& a) { a.optimizer.name = "adam", a.optimizer.eps = 0; }, "--eps",
       [](const auto& s) { return std::get<AdamOptions>(s.trainer.optimizer).eps; }},
      {[](auto& a) { a.schedule.warmup_epochs = 0; }, "--warmup-epochs",
       [](const auto& s) { return s.trainer.schedule.warmup_epochs; }},
      {[](auto& a) { a.schedule = {.schedules = {"one-cycle"}, .pct_start = 0}; }, "--pct-start",
       [](const auto& s) { return s.trainer.schedule.pct_start; }},
      {[](auto& a) {
         a.schedule = {.schedules = {"one-cycle"}, .cycle_momentum = true, .base_momentum = 0};
       },
       "--base-momentum", [](const auto& s) { return s.trainer.schedule.base_momentum; }},
      {[](auto& a) {
         a.schedule = {.schedules = {"one-cycle"},
                       .cycle_momentum = true,
                       .base_momentum = 0,
                       .max_momentum = 0};
       },
       "--max-momentum", [](const auto& s) { return s.trainer.schedule.max_momentum; }},
      {[](auto& a) { a.limits.limit_val_batches = 0; }, "--limit-test-batches",
       [](const auto& s) { return static_cast<double>(s.trainer.limit_val_batches.value_or(-1)); }},
      {[](auto& a) { a.limits.ema_decay = 0; }, "--ema-decay",
       [](const auto& s) { return s.trainer.ema_decay.value_or(-1); }},
      {[](auto& a) { a.workers = 0; }, "--workers",
       [](const auto& s) { return s.workers_per_rank; }},
      {[](auto& a) { a.recipe = "classify", a.data = "photos", a.of_recipe.val_fraction = 0; },
       "--val-fraction",
       [](const auto& s) { return s.of_recipe.validation_fraction.value_or(-1); }},
      {[](auto& a) { a.recipe = "autoencoder", a.data = "photos", a.of_recipe.cache = "none"; },
       "--cache",
       [](const auto& s) { return static_cast<double>(s.of_recipe.cache_bytes.value_or(-1)); }},
  };
  for (const Case& each : cases) {
    const TrainSettings settings = resolve(changed_arguments(each.change));
    EXPECT_EQ(each.value(settings), 0) << each.what;
  }
}

// Every option with every strategy.
TEST(TrainRanges, RefuseOptionsOfOtherStrategies) {
  using Names = std::vector<std::string>;
  struct Case {
    RangeChange change;
    const char* option;
    Names strategies;  // to which the option belongs
  };
  const Names pipelines = {"pipeline", "hybrid"};
  const Case cases[] = {
      {[](auto& a) { a.devices = 2; }, "--devices", {"dp"}},
      {[](auto& a) { a.device_weights = "3,1"; }, "--device-weights", {"dp"}},
      {[](auto& a) { a.dp_loss = "on-each"; }, "--dp-loss", {"dp"}},
      {[](auto& a) { a.stages = 2; }, "--stages", pipelines},
      {[](auto& a) { a.micro_batches = 2; }, "--micro-batches", pipelines},
      {[](auto& a) { a.schedule.schedules = {"gpipe"}; }, "--schedule gpipe", pipelines},
      {[](auto& a) { a.recompute = true; }, "--recompute", pipelines},
      {[](auto& a) { a.sync_batchnorm = true; }, "--sync-batchnorm", {"ddp", "zero1"}},
      {[](auto& a) { a.bucket_cap_mb = 1; }, "--bucket-cap-mb", {"ddp", "zero1"}},
      {[](auto& a) { a.find_unused_parameters = true; },
       "--find-unused-parameters",
       {"ddp", "zero1", "hybrid"}},
      {[](auto& a) { a.shard_optimizer = true; }, "--shard-optimizer", {"hybrid"}},
  };
  const std::map<std::string, int> ranks = {{"single", 1}, {"dp", 1},       {"ddp", 2},
                                            {"zero1", 2},  {"pipeline", 1}, {"hybrid", 4}};
  for (const std::string& strategy : strategy_names()) {
    for (const Case& each : cases) {
      TrainArguments arguments = changed_arguments(each.change);
      arguments.strategy = strategy;
      arguments.nproc_per_node = ranks.at(strategy);
      const bool belongs = std::ranges::find(each.strategies, strategy) != each.strategies.end();
      if (belongs) {
        EXPECT_NO_THROW(resolve(arguments)) << each.option << " with " << strategy;
        continue;
      }
      const std::size_t last = each.strategies.size() - 1;
      std::string names = each.strategies[last];
      if (last > 0) names = each.strategies[last - 1] + " and " + names;
      if (last > 1) names = each.strategies[last - 2] + ", " + names;
      EXPECT_THAT(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
                  testing::StartsWith(
                      lockstep::str("train: ", each.option, " belongs to --strategy ", names)))
          << strategy;
    }
  }
}

TEST(TrainRanges, CountTheProcessesOfPipelines) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  const auto with = [&](const char* strategy, int processes) {
    arguments.strategy = strategy;
    arguments.nproc_per_node = processes;
    return testing_support::message_of<ConfigError>([&] { resolve(arguments); });
  };
  const std::string accepted = "nothing was thrown";
  EXPECT_EQ(with("pipeline", 1), accepted);
  EXPECT_TRUE(resolve(arguments).on_several_devices);
  EXPECT_EQ(with("pipeline", 2), accepted);
  EXPECT_FALSE(resolve(arguments).on_several_devices);
  EXPECT_FALSE(resolve(arguments).devices);
  EXPECT_EQ(resolve(arguments).data_shares, 1);
  EXPECT_EQ(with("pipeline", 4),
            "train: --strategy pipeline with --stages 2 by the schedule 1f1b needs 2 processes, or "
            "one with threads, but there are 4");
  EXPECT_EQ(with("hybrid", 2), accepted);
  EXPECT_EQ(resolve(arguments).data_shares, 1);
  for (const int processes : {1, 3}) {
    EXPECT_EQ(with("hybrid", processes),
              lockstep::str("train: --strategy hybrid with --stages 2 by the schedule 1f1b needs a "
                            "multiple of 2 processes, but there are ",
                            processes));
  }
  arguments.stages = 1;
  EXPECT_EQ(with("pipeline", 2),
            "train: --strategy pipeline with --stages 1 by the schedule 1f1b needs 1 process, or "
            "one with threads, but there are 2");
  EXPECT_EQ(with("hybrid", 1), accepted);
}

// Each option of a schedule is tried with every schedule.
TEST(TrainRanges, TakeOptionsOfTheirScheduleOnly) {
  const char* const one_cycle =
      "train: --pct-start, --div-factor and --final-div-factor belong to --schedule one-cycle";
  struct Case {
    RangeChange change;
    std::vector<std::string> schedules;
    const char* refusal;
  };
  const Case cases[] = {
      {[](auto& a) { a.schedule.gamma = 0.5; },
       {"step", "multi-step", "plateau"},
       "train: --gamma belongs to --schedule step, multi-step and plateau"},
      {[](auto& a) { a.schedule.step_epochs = 2; },
       {"step"},
       "train: --step-epochs belongs to --schedule step"},
      {[](auto& a) { a.schedule.milestones = "3"; },
       {"multi-step"},
       "train: --milestones belongs to --schedule multi-step"},
      {[](auto& a) { a.schedule.pct_start = 0.5; }, {"one-cycle"}, one_cycle},
      {[](auto& a) { a.schedule.div_factor = 5; }, {"one-cycle"}, one_cycle},
      {[](auto& a) { a.schedule.final_div_factor = 5; }, {"one-cycle"}, one_cycle},
      {[](auto& a) { a.schedule.cycle_momentum = true; },
       {"one-cycle"},
       "train: --cycle-momentum belongs to --schedule one-cycle"},
      {[](auto& a) { a.schedule.plateau = "loss:3"; },
       {"plateau"},
       "train: --plateau belongs to --schedule plateau"},
      {[](auto& a) { a.schedule.warmup_epochs = 1; }, learning_rate_schedule_names(), ""},
  };
  for (const Case& each : cases) {
    for (const std::string& name : learning_rate_schedule_names()) {
      TrainArguments arguments = changed_arguments(each.change);
      arguments.schedule.schedules = {name};
      if (name == "multi-step") arguments.schedule.milestones = "3";
      const bool belongs = std::ranges::find(each.schedules, name) != each.schedules.end();
      EXPECT_EQ(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
                belongs ? "nothing was thrown" : each.refusal)
          << name;
    }
  }
}

TEST(TrainRanges, RefuseOptionsOfAnotherChoice) {
  const testing_support::TemporaryDirectory directory;
  const std::string out = (directory / "run").string();
  const char* const one_cycle =
      "--pct-start, --div-factor and --final-div-factor belong to --schedule one-cycle";
  const char* const adam = "--betas, --eps and --amsgrad belong to --optimizer adam and adamw";
  const char* const sgd = "--momentum and --nesterov belong to --optimizer sgd";
  const char* const kept =
      "--every-n-train-steps, --keep-checkpoints, --save-top-k and --background-checkpoints need "
      "--out DIR";
  struct Case {
    RangeChange change;
    const char* expected;
  };
  const Case cases[] = {
      {[](auto& a) { a.schedule = {.schedules = {"cosine"}, .gamma = 0.5}; },
       "--gamma belongs to --schedule step, multi-step and plateau"},
      {[](auto& a) { a.schedule = {.schedules = {"cosine"}, .step_epochs = 2}; },
       "--step-epochs belongs to --schedule step"},
      {[](auto& a) { a.schedule = {.schedules = {"step"}, .milestones = "3"}; },
       "--milestones belongs to --schedule multi-step"},
      {[](auto& a) { a.schedule = {.schedules = {"multi-step"}}; },
       "--schedule multi-step needs --milestones"},
      {[](auto& a) { a.schedule = {.schedules = {"step"}, .pct_start = 0.5}; }, one_cycle},
      {[](auto& a) { a.schedule = {.schedules = {"step"}, .div_factor = 5}; }, one_cycle},
      {[](auto& a) { a.schedule = {.schedules = {"step"}, .final_div_factor = 5}; }, one_cycle},
      {[](auto& a) { a.schedule = {.schedules = {"step"}, .plateau = "loss:3"}; },
       "--plateau belongs to --schedule plateau"},
      {[](auto& a) { a.schedule = {.schedules = {"plateau"}, .gamma = 1}; },
       "--gamma of --schedule plateau must be below 1, got 1"},
      {[](auto& a) { a.schedule = {.schedules = {"plateau"}, .plateau = "accuracy:3"}; },
       "--plateau accuracy:3 must say whether larger or smaller is better"},
      {[](auto& a) { a.schedule.schedules = {"linear"}; }, "--schedule must be one of "},
      {[](auto& a) { a.optimizer.betas = {0.9, 0.99}; }, adam},
      {[](auto& a) { a.optimizer.eps = 1e-6; }, adam},
      {[](auto& a) { a.optimizer.amsgrad = true; }, adam},
      {[](auto& a) { a.optimizer.name = "adam", a.optimizer.momentum = 0.5; }, sgd},
      {[](auto& a) { a.optimizer.name = "adamw", a.optimizer.nesterov = true; }, sgd},
      {[](auto& a) { a.optimizer.name = "lamb"; }, "--optimizer must be one of "},
      {[](auto& a) { a.checkpoints.every_n_train_steps = 3; }, kept},
      {[](auto& a) { a.checkpoints.keep_checkpoints = 3; }, kept},
      {[](auto& a) { a.checkpoints.save_top_k = "loss:1"; }, kept},
      {[](auto& a) { a.checkpoints.in_background = true; }, kept},
      {[](auto& a) { a.resume = "auto"; },
       "--resume needs --out DIR, the folder of the run to resume"},
      {[&](auto& a) { a.out = out, a.resume = kResumeFlag, a.overwrite = true; },
       "--resume and --overwrite cannot be combined"},
      {[&](auto& a) { a.out = out, a.resume = "auto", a.limits.fast_dev_run = 1; },
       "--resume cannot be combined with --fast-dev-run, which keeps no checkpoints; remove one of "
       "them"},
      {[&](auto& a) { a.out = out, a.resume = "always"; },
       "--resume takes no value or the value auto, got 'always'"},
      {[&](auto& a) { a.log_dir = out; }, "--log-dir has no effect without --logger"},
      {[&](auto& a) { a.out = out, a.logger = "csv", a.mlflow_uri = "http://localhost"; },
       "--mlflow-uri has no effect without --logger mlflow"},
      {[](auto& a) { a.logger = "csv"; },
       "--logger needs a folder to write to: give --log-dir DIR or --out DIR"},
      {[](auto& a) { a.limits.trace = true; },
       "--trace needs --out DIR, where trace.json is written"},
      {[&](auto& a) {
         a.strategy = "pipeline", a.nproc_per_node = 2, a.logger = "csv", a.log_dir = out;
         a.limits.log_histograms_every_n_steps = 1;
       },
       "--log-histograms-every-n-steps looks at the whole model on rank 0, but --strategy "
       "pipeline"},
      {[](auto& a) { a.strategy = "pipeline", a.nproc_per_node = 2, a.limits.ema_decay = 0.5; },
       "--ema-decay averages the whole model on each rank, but --strategy pipeline divides it"},
      {[](auto& a) { a.no_fused_kernels = true; },
       "--no-fused-kernels has no effect on cifar10, which has no fused kernels; remove "},
      {[](auto& a) { a.max_image_pixels = 5; },
       "--max-image-pixels has no effect on cifar10, which reads no folder of images; remove "
       "--max-image-pixels"},
      {[](auto& a) { a.decoding = "scaled"; },
       "--decoding has no effect on cifar10, which reads no folder of images; remove --decoding"},
      {[](auto& a) { a.decoding = "fast"; }, "--decoding must be one of exact, scaled"},
      {[](auto& a) {
         a.recipe = "classify", a.data = "photos", a.loader = "dali", a.decoding = "scaled";
       },
       "--decoding scaled needs --loader native, got dali"},
  };
  for (const Case& each : cases) {
    const TrainArguments arguments = changed_arguments(each.change);
    EXPECT_THAT(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
                testing::StartsWith(std::string("train: ") + each.expected));
  }
  EXPECT_TRUE(directory.names().empty()) << "nothing is written before all options are right";
}

TEST(TrainRanges, RefuseListsThatAreNone) {
  for (const char* text : {"", "4,3", "0", "-1", "3,", "3,x", "2e9", "nan", "3 ,4"}) {
    const TrainArguments arguments = changed_arguments(
        [&](auto& a) { a.schedule = {.schedules = {"multi-step"}, .milestones = text}; });
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
              std::string("train: --milestones: expected ascending numbers of epochs, separated by "
                          "commas, such as 30,60; got '") +
                  text + "'");
  }
  for (const char* text :
       {"", "loss", "loss:", ":3", "loss:-1", "loss:x", "loss:3:up", "loss:3:min:x", "loss:3:"}) {
    const TrainArguments arguments =
        changed_arguments([&](auto& a) { a.limits.early_stopping = text; });
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
              std::string("train: --early-stopping must be METRIC:PATIENCE or "
                          "METRIC:PATIENCE:GOAL, as in loss:3 or accuracy:3:max, got '") +
                  text + "'");
  }
}

// What was written is never proposed again.
TEST(TrainRanges, ProposeANameForAWatchedValueWithATypingError) {
  const std::pair<std::string, const char*> cases[] = {
      {"acuracy", "; did you mean 'accuracy'?"},
      {"accuracy", ""},
      {"psnr", ""},
      {"los", "; did you mean 'loss'?"},
      {"recall", ""},
      {"val_loss", "; did you mean 'loss'?"},
      {"trainloss", "; did you mean 'train_loss'?"}};
  for (const auto& [metric, proposal] : cases) {
    const std::string text = metric + ":3";
    const std::string what =
        text + " must say whether larger or smaller is better: end it with :max or :min" + proposal;
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] {
                resolve(changed_arguments([&](auto& a) { a.limits.early_stopping = text; }));
              }),
              "train: --early-stopping " + what);
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] {
                resolve(changed_arguments(
                    [&](auto& a) { a.schedule = {.schedules = {"plateau"}, .plateau = text}; }));
              }),
              "train: --plateau " + what);
  }
}

}  // namespace
}  // namespace lockstep::cli
