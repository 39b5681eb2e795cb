// How `lockstep train` resolves its options before any rank exists.
#include <lockstep/cli/train/train_settings.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/options.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

// Stages on threads wait for each other without a group, so that the timeout must reach the
// pipeline.
TEST(TrainSettings, GiveAPipelineTheDeadlineOfAllWaits) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  arguments.strategy = "pipeline";
  arguments.timeout_seconds = 7.5;
  const TrainSettings settings = resolve(arguments);
  EXPECT_EQ(settings.timeout, std::chrono::milliseconds(7500));
  EXPECT_EQ(settings.strategy_options.timeout, std::chrono::milliseconds(7500));
}

TEST(TrainSettings, GivePipelinesTheirRecomputation) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  arguments.strategy = "pipeline";
  EXPECT_FALSE(resolve(arguments).strategy_options.recompute);
  arguments.recompute = true;
  EXPECT_TRUE(resolve(arguments).strategy_options.recompute);
  arguments.strategy = "hybrid";
  arguments.nproc_per_node = 4;
  EXPECT_TRUE(resolve(arguments).strategy_options.recompute);
}

TEST(TrainSettings, GiveStrategiesThatAverageTheSearchForUnusedParameters) {
  for (const char* strategy : {"ddp", "zero1", "hybrid"}) {
    TrainArguments arguments;
    arguments.recipe = "cifar10";
    arguments.strategy = strategy;
    arguments.nproc_per_node = 4;
    EXPECT_FALSE(resolve(arguments).strategy_options.find_unused_parameters) << strategy;
    arguments.find_unused_parameters = true;
    EXPECT_TRUE(resolve(arguments).strategy_options.find_unused_parameters) << strategy;
  }
}

TEST(TrainSettings, LetRanksShareAGpuOverNccl) {
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.nproc_per_node = 4;
  arguments.nccl_version = 22809;
  const TrainSettings usual = resolve(arguments);
  EXPECT_FALSE(usual.share_gpu);
  EXPECT_FALSE(usual.gpu_sharing);
  EXPECT_EQ(usual.backend, "auto");

  arguments.share_gpu = true;
  const TrainSettings old_nccl = resolve(arguments);
  EXPECT_TRUE(old_nccl.share_gpu);
  EXPECT_EQ(old_nccl.gpu_sharing, nccl::GpuSharing::kOwnHosts);
  EXPECT_EQ(old_nccl.backend, "nccl") << "auto would go through host memory";
  arguments.nccl_version = 23007;
  EXPECT_EQ(resolve(arguments).gpu_sharing, nccl::GpuSharing::kOnRequest);

  // Other transports need nothing of NCCL.
  arguments.nccl_version = std::nullopt;
  arguments.backend = "shm";
  const TrainSettings over_shm = resolve(arguments);
  EXPECT_TRUE(over_shm.share_gpu);
  EXPECT_FALSE(over_shm.gpu_sharing);
  EXPECT_EQ(over_shm.backend, "shm");
}

TEST(TrainSettings, RefuseToShareAGpuThatCannotBeShared) {
  struct Case {
    std::function<void(TrainArguments&)> change;
    const char* expected;
  };
  const Case cases[] = {
      {[](auto& a) { a.accelerator = "cpu"; },
       "train: --share-gpu and --accelerator cpu cannot be combined"},
      {[](auto& a) { a.nproc_per_node = 1; },
       "train: --share-gpu has no effect with one rank; remove it"},
      {[](auto& a) { a.nccl_version = 22705; },
       "train: --share-gpu needs NCCL 2.28 or newer, but this is NCCL 2.27.5"},
      {[](auto& a) { a.nccl_version = std::nullopt; },
       "train: --share-gpu needs NCCL 2.28 or newer, which only a build with CUDA has"},
  };
  for (const Case& each : cases) {
    TrainArguments arguments;
    arguments.recipe = "mnist";
    arguments.nproc_per_node = 2;
    arguments.share_gpu = true;
    arguments.nccl_version = 22809;
    each.change(arguments);
    EXPECT_THAT(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
                testing::StartsWith(each.expected));
  }
}

// A trial keeps nothing, so that an existing run's folder, or a missing one, stays as it is.
TEST(TrainSettings, LeaveOutAloneForATrial) {
  const testing_support::TemporaryDirectory directory;
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.out = (directory / "run").string();
  arguments.limits.fast_dev_run = 2;
  const TrainSettings trial = resolve(arguments);
  EXPECT_FALSE(trial.out_lock);
  EXPECT_FALSE(std::filesystem::exists(trial.out));
  std::filesystem::create_directory(trial.out);
  std::ofstream(trial.trainer.checkpoints.link) << "a run";
  resolve(arguments);
  arguments.limits.fast_dev_run.reset();
  EXPECT_THROW(resolve(arguments), ConfigError);
}

TEST(TrainSettings, SayHowLibTorchComputes) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  const TrainSettings usual = resolve(arguments);
  EXPECT_TRUE(usual.channels_last);
  EXPECT_FALSE(usual.trainer.matmul_precision);
  EXPECT_FALSE(usual.trainer.cudnn_benchmark);
  EXPECT_FALSE(usual.trainer.cuda_graph);
  arguments.matmul_precision = "high";
  arguments.memory_format = "contiguous";
  arguments.cudnn_benchmark = true;
  arguments.cuda_graph = true;
  const TrainSettings given = resolve(arguments);
  EXPECT_FALSE(given.channels_last);
  EXPECT_EQ(given.trainer.matmul_precision, MatmulPrecision::kHigh);
  EXPECT_TRUE(given.trainer.cudnn_benchmark);
  EXPECT_TRUE(given.trainer.cuda_graph);
  arguments.limits.on_nan = "warn";
  arguments.nproc_per_node = 2;
  for (const char* backend : {"auto", "nccl"}) {
    arguments.backend = backend;
    EXPECT_TRUE(resolve(arguments).trainer.cuda_graph) << backend;
  }
}

TEST(TrainSettings, RefuseComputingThatCannotBe) {
  struct Case {
    std::function<void(TrainArguments&)> change;
    const char* expected;
  };
  const Case cases[] = {
      {[](auto& a) { a.matmul_precision = "tf32"; },
       "train: --matmul-precision must be one of highest, high, medium, got 'tf32'"},
      {[](auto& a) { a.memory_format = "nhwc"; }, "train: --memory-format must be"},
      {[](auto& a) { a.recipe = "mnist", a.memory_format = "contiguous"; },
       "train: --memory-format has no effect on mnist, which has no channels-last form; remove "
       "--memory-format"},
      {[](auto& a) { a.cudnn_benchmark = a.limits.deterministic = true; },
       "train: --cudnn-benchmark and --deterministic cannot be combined"},
      {[](auto& a) { a.cudnn_benchmark = true, a.accelerator = "cpu"; },
       "train: --cudnn-benchmark has no effect with --accelerator cpu"},
      {[](auto& a) { a.cuda_graph = true, a.accelerator = "cpu"; },
       "train: --cuda-graph needs a GPU, but --accelerator is cpu"},
      {[](auto& a) { a.cuda_graph = true, a.strategy = "dp"; },
       "train: --cuda-graph belongs to --strategy single and ddp, got dp; remove "
       "--cuda-graph"},
      {[](auto& a) { a.cuda_graph = true, a.nproc_per_node = 2, a.backend = "gloo"; },
       "train: --cuda-graph needs --backend nccl, which a graph can replay, got gloo; remove "
       "--cuda-graph"},
      {[](auto& a) { a.cuda_graph = a.limits.detect_anomaly = true; },
       "train: --cuda-graph and --detect-anomaly cannot be combined: a replayed backward pass does "
       "not check values for NaN; remove one of them"},
      {[](auto& a) { a.cuda_graph = true, a.strategy = "zero1", a.nproc_per_node = 2; },
       "train: --cuda-graph belongs to --strategy single and ddp, got zero1"},
      {[](auto& a) { a.cuda_graph = true, a.strategy = "pipeline"; },
       "train: --cuda-graph belongs to --strategy single and ddp, got pipeline"},
      {[](auto& a) { a.cuda_graph = true, a.strategy = "hybrid", a.nproc_per_node = 4; },
       "train: --cuda-graph belongs to --strategy single and ddp, got hybrid"},
      {[](auto& a) { a.cuda_graph = true, a.nproc_per_node = 2, a.backend = "shm"; },
       "train: --cuda-graph needs --backend nccl, which a graph can replay, got shm"},
      {[](auto& a) { a.cuda_graph = true, a.limits.on_nan = "stop"; },
       "train: --cuda-graph and --on-nan stop cannot be combined"},
      {[](auto& a) { a.cuda_graph = true, a.limits.on_nan = "skip"; },
       "train: --cuda-graph and --on-nan skip cannot be combined: a replayed step updates the "
       "weights before the host knows its loss; choose one"},
      {[](auto& a) {
         a.cuda_graph = a.schedule.cycle_momentum = true;
         a.schedule.schedules = {"one-cycle"};
       },
       "train: --cuda-graph and --cycle-momentum cannot be combined: the momentum of a replayed "
       "step is that of the recorded one; remove one of them"},
  };
  for (const Case& each : cases) {
    TrainArguments arguments;
    arguments.recipe = "cifar10";
    each.change(arguments);
    EXPECT_THAT(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
                testing::StartsWith(each.expected));
  }
}

TEST(TrainSettings, GiveDpAWeightForEachDevice) {
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.strategy = "dp";
  EXPECT_TRUE(resolve(arguments).strategy_options.device_weights.empty());
  arguments.device_weights = "3,0.5";
  const TrainSettings settings = resolve(arguments);
  EXPECT_EQ(settings.strategy_options.device_weights, (std::vector<double>{3, 0.5}));
  EXPECT_EQ(settings.devices, 2) << "as many as there are weights";
  arguments.devices = 2;
  EXPECT_EQ(resolve(arguments).devices, 2);

  const auto refusal = [&](const std::string& weights) {
    arguments.device_weights = weights;
    return testing_support::message_of<ConfigError>([&] { resolve(arguments); });
  };
  EXPECT_EQ(refusal("3,1,1"),
            "train: --device-weights 3,1,1 must have a number for each device, but --devices is 2");
  for (const std::string word : {"", "0", "-1", "nan", "inf", "2x"}) {
    EXPECT_EQ(
        refusal("3," + word),
        "train: --device-weights: expected numbers above 0 and up to 1e6, separated by commas, "
        "such as 3,1; got '" +
            word + "'");
  }
}

TEST(TrainSettings, GiveTheTrainerItsLimits) {
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.limits = {.max_time = "1:02:03",
                      .early_stopping = "accuracy:4:max",
                      .limit_train_batches = 7,
                      .gradient_clip_val = 0.5};
  TrainerOptions trainer = resolve(arguments).trainer;
  EXPECT_EQ(trainer.max_epochs, 10) << "the recipe's";
  EXPECT_EQ(trainer.max_time_seconds, 3723);
  EXPECT_EQ(trainer.early_stopping->monitor, "accuracy");
  EXPECT_EQ(trainer.early_stopping->patience, 4);
  EXPECT_EQ(trainer.early_stopping->mode, MetricGoal::kMax);
  EXPECT_EQ(trainer.limit_train_batches, 7);
  EXPECT_EQ(trainer.gradient_clip_norm, 0.5);
  EXPECT_EQ(trainer.check_val_every_n_epoch, 1);
  arguments.limits.gradient_clip_algorithm = "value";
  trainer = resolve(arguments).trainer;
  EXPECT_EQ(trainer.gradient_clip_norm, std::nullopt);
  EXPECT_EQ(trainer.gradient_clip_value, 0.5);
  EXPECT_EQ(parse_max_time("90"), 90);
  EXPECT_EQ(parse_max_time("2:01:00:05"), 2 * 86400 + 3600 + 5);
  for (const char* text : {"", "0", "1:", "1:2:3:4:5", "-1", "1.5"}) {
    EXPECT_THROW(parse_max_time(text), ConfigError) << text;
  }
}

TEST(TrainSettings, ReadTimesOfAllForms) {
  const std::pair<const char*, double> cases[] = {{"4294967295", 4294967295.0},
                                                  {"00:30", 30},
                                                  {"1:60", 120},
                                                  {"0:0:0:7", 7},
                                                  {"1:00:00:00", 86400}};
  for (const auto& [text, seconds] : cases) EXPECT_EQ(parse_max_time(text), seconds) << text;
  for (const char* text : {"4294967296", "0:00:00", ":30", "1::2", " 9", "9 ", "1:-2"}) {
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] { parse_max_time(text); }),
              lockstep::str("train: --max-time must be seconds, MM:SS, HH:MM:SS or DD:HH:MM:SS, "
                            "above 0, got '",
                            text, "'"));
  }
}

// Every option has a value of its own, so that none can take the place of another.
TEST(TrainSettings, GiveTheTrainerEachLimitOfItsOwn) {
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.max_epochs = 21;
  arguments.accumulate_grad_batches = 22;
  arguments.seed = 23;
  arguments.limits = {.min_epochs = 3,
                      .max_steps = 4,
                      .limit_train_batches = 5,
                      .overfit_batches = 6,
                      .limit_val_batches = 7,
                      .check_val_every_n_epoch = 8,
                      .val_check_interval = 9,
                      .num_sanity_val_steps = 10,
                      .log_every_n_steps = 11,
                      .ema_decay = 0.25,
                      .gradient_clip_norm = 0.5,
                      .gradient_clip_val = 0.75,
                      .gradient_clip_algorithm = "value",
                      .on_nan = "stop",
                      .deterministic = true};
  const TrainSettings settings = resolve(arguments);
  const TrainerOptions& trainer = settings.trainer;
  EXPECT_EQ(settings.seed, 23U);
  EXPECT_EQ(trainer.max_epochs, 21);
  EXPECT_EQ(trainer.accumulate_grad_batches, 22);
  EXPECT_EQ(trainer.min_epochs, 3);
  EXPECT_EQ(trainer.max_steps, 4);
  EXPECT_EQ(trainer.limit_train_batches, 5);
  EXPECT_EQ(trainer.overfit_batches, 6);
  EXPECT_EQ(trainer.limit_val_batches, 7);
  EXPECT_EQ(trainer.check_val_every_n_epoch, 8);
  EXPECT_EQ(trainer.val_check_interval, 9);
  EXPECT_EQ(trainer.num_sanity_val_steps, 10);
  EXPECT_EQ(trainer.log_every_n_steps, 11);
  EXPECT_EQ(trainer.ema_decay, 0.25);
  EXPECT_EQ(trainer.gradient_clip_norm, 0.5);
  EXPECT_EQ(trainer.gradient_clip_value, 0.75);
  EXPECT_EQ(trainer.on_nan, OnNan::kStop);
  EXPECT_TRUE(trainer.deterministic);
  EXPECT_FALSE(trainer.detect_anomaly);
  arguments.limits = {.detect_anomaly = true};
  const TrainerOptions other = resolve(arguments).trainer;
  EXPECT_TRUE(other.detect_anomaly);
  EXPECT_FALSE(other.deterministic);
  EXPECT_EQ(other.on_nan, OnNan::kWarn);
  EXPECT_FALSE(other.max_steps || other.limit_train_batches || other.limit_val_batches);
  EXPECT_FALSE(other.val_check_interval || other.ema_decay || other.max_time_seconds);
  EXPECT_FALSE(other.gradient_clip_norm || other.gradient_clip_value || other.early_stopping);
}

// Only what is given replaces the recipe's numbers; another optimizer begins with PyTorch's.
TEST(TrainSettings, GiveTheTrainerItsOptimizer) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  const auto given = [&](const OptimizerArguments& optimizer) {
    arguments.optimizer = optimizer;
    return to_settings(resolve(arguments).trainer.optimizer);
  };
  const SgdOptions usual{.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4};
  EXPECT_EQ(given({}), to_settings(usual));
  EXPECT_EQ(given({.name = "sgd", .lr = 0.3}),
            to_settings(SgdOptions{.lr = 0.3, .momentum = 0.9, .weight_decay = 5e-4}));
  EXPECT_EQ(
      given({.weight_decay = 0.01, .momentum = 0.8, .nesterov = true}),
      to_settings(SgdOptions{.lr = 0.1, .momentum = 0.8, .weight_decay = 0.01, .nesterov = true}));
  EXPECT_EQ(given({.name = "adam"}), to_settings(AdamOptions{}));
  EXPECT_EQ(given({.name = "adamw"}), to_settings(AdamWOptions{}));
  EXPECT_EQ(given({.name = "adamw",
                   .lr = 0.2,
                   .weight_decay = 0.05,
                   .betas = std::pair(0.7, 0.8),
                   .eps = 1e-3,
                   .amsgrad = true}),
            to_settings(AdamWOptions{.lr = 0.2,
                                     .beta1 = 0.7,
                                     .beta2 = 0.8,
                                     .eps = 1e-3,
                                     .weight_decay = 0.05,
                                     .amsgrad = true}));
}

TEST(TrainSettings, GiveTheTrainerEachNumberOfItsSchedule) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  EXPECT_EQ(resolve(arguments).trainer.schedule.kind, ScheduleKind::kCosine) << "the recipe's";
  EXPECT_EQ(resolve(arguments).trainer.schedule.warmup_epochs, 1);
  arguments.schedule = {.schedules = {"step", "one-cycle", "1f1b", "one-cycle"},
                        .pct_start = 0.25,
                        .div_factor = 11,
                        .final_div_factor = 12,
                        .cycle_momentum = true,
                        .base_momentum = 0.7,
                        .max_momentum = 0.75,
                        .warmup_epochs = 0.5};
  arguments.strategy = "pipeline";
  const ScheduleOptions cycle = resolve(arguments).trainer.schedule;
  EXPECT_EQ(cycle.kind, ScheduleKind::kOneCycle);
  EXPECT_EQ(cycle.pct_start, 0.25);
  EXPECT_EQ(cycle.div_factor, 11);
  EXPECT_EQ(cycle.final_div_factor, 12);
  EXPECT_EQ(cycle.base_momentum, 0.7);
  EXPECT_EQ(cycle.max_momentum, 0.75);
  EXPECT_EQ(cycle.warmup_epochs, 0.5);
  arguments.schedule = {.schedules = {"gpipe", "step"}, .step_epochs = 2.5, .gamma = 0.3};
  const TrainSettings settings = resolve(arguments);
  EXPECT_EQ(settings.trainer.schedule.kind, ScheduleKind::kStep);
  EXPECT_EQ(settings.trainer.schedule.step_epochs, 2.5);
  EXPECT_EQ(settings.trainer.schedule.gamma, 0.3);
  EXPECT_EQ(settings.strategy_options.schedule, schedule_named("gpipe"));
}

TEST(TrainSettings, GiveTheTrainerItsCheckpoints) {
  const testing_support::TemporaryDirectory directory;
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.out = (directory / "run").string();
  const CheckpointOptions usual = resolve(arguments).trainer.checkpoints;
  EXPECT_EQ(usual.directory, directory / "run/checkpoints");
  EXPECT_EQ(usual.link, directory / "run/checkpoint.safetensors");
  EXPECT_EQ(usual.keep_last, 2);
  EXPECT_EQ(usual.save_top_k, 0);
  EXPECT_EQ(usual.every_n_train_steps, 0);
  EXPECT_FALSE(usual.background);
  arguments.checkpoints = {.every_n_train_steps = 3,
                           .keep_checkpoints = 4,
                           .save_top_k = "accuracy:5:max",
                           .in_background = true};
  const CheckpointOptions given = resolve(arguments).trainer.checkpoints;
  EXPECT_EQ(given.every_n_train_steps, 3);
  EXPECT_EQ(given.keep_last, 4);
  EXPECT_EQ(given.save_top_k, 5);
  EXPECT_EQ(given.monitor, "accuracy");
  EXPECT_EQ(given.mode, MetricGoal::kMax);
  EXPECT_TRUE(given.background);
}

// The loader's threads of all ranks together are rounded up to the same number for each.
TEST(TrainSettings, DivideTheBatchAndTheLoaderThreads) {
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.nproc_per_node = 2;
  const TrainSettings usual = resolve(arguments);
  EXPECT_EQ(usual.strategy, "ddp");
  EXPECT_EQ(usual.global_batch, 128);
  EXPECT_EQ(usual.batch_per_rank, 64);
  EXPECT_EQ(usual.workers_per_rank, 1);
  EXPECT_EQ(usual.data_shares, 2);
  arguments.workers = 3;
  arguments.batch_size = 10;
  arguments.threads = 5;
  EXPECT_EQ(resolve(arguments).workers_per_rank, 2);
  EXPECT_EQ(resolve(arguments).batch_per_rank, 5);
  EXPECT_EQ(resolve(arguments).threads, 5);
  arguments.workers = 0;
  EXPECT_EQ(resolve(arguments).workers_per_rank, 0);
  arguments.strategy = "hybrid";
  arguments.nproc_per_node = 4;
  arguments.micro_batches = 5;
  EXPECT_EQ(resolve(arguments).data_shares, 2) << "pipelines";
  EXPECT_EQ(resolve(arguments).batch_per_rank, 5);
}

// The others need one process for each rank, or for each worker of a pipeline.
TEST(TrainSettings, KeepStrategiesOfOneProcessFromSeveral) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  for (const std::string strategy : {"single", "dp"}) {
    arguments.strategy = strategy;
    arguments.nproc_per_node = 2;
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
              "train: --strategy " + strategy +
                  " is for one process, but there are 2; use --strategy ddp");
    arguments.nproc_per_node = 1;
    EXPECT_EQ(resolve(arguments).strategy, strategy);
    EXPECT_EQ(resolve(arguments).on_several_devices, strategy == "dp");
  }
  arguments.strategy.reset();
  EXPECT_EQ(resolve(arguments).strategy, "single");
  arguments.strategy = "ddp";
  EXPECT_EQ(resolve(arguments).strategy, "ddp");
  EXPECT_EQ(resolve(arguments).data_shares, 1);
  EXPECT_FALSE(resolve(arguments).on_several_devices);
}

TEST(TrainSettings, TurnPhotographsOfAFolderOnly) {
  TrainArguments arguments;
  arguments.recipe = "classify";
  arguments.data = "photos";
  EXPECT_FALSE(resolve(arguments).exif_transpose);
  arguments.exif_transpose = true;
  EXPECT_TRUE(resolve(arguments).exif_transpose);
  const auto refusal = [&] {
    return testing_support::message_of<ConfigError>([&] { resolve(arguments); });
  };
  arguments.recipe = "mnist";
  EXPECT_EQ(refusal(),
            "train: --exif-transpose has no effect on mnist, which reads no folder of images; "
            "remove --exif-transpose");
  arguments.recipe = "resnet50-split";
  EXPECT_TRUE(resolve(arguments).exif_transpose);
  arguments.data.reset();
  EXPECT_THAT(refusal(),
              testing::StartsWith(
                  "train: --exif-transpose has no effect on resnet50-split without --data DIR"));
}

TEST(TrainSettings, GiveTheTrainerItsSchedule) {
  TrainArguments arguments;
  arguments.recipe = "mnist";
  arguments.schedule = {.schedules = {"multi-step"}, .milestones = "3,4.5", .gamma = 0.2};
  ScheduleOptions schedule = resolve(arguments).trainer.schedule;
  EXPECT_EQ(schedule.kind, ScheduleKind::kMultiStep);
  EXPECT_EQ(schedule.milestones, (std::vector<double>{3, 4.5}));
  EXPECT_EQ(schedule.gamma, 0.2);
  arguments.schedule = {.schedules = {"plateau"}, .gamma = 0.5, .plateau = "accuracy:2:max"};
  schedule = resolve(arguments).trainer.schedule;
  EXPECT_EQ(schedule.plateau.monitor, "accuracy");
  EXPECT_EQ(schedule.plateau.patience, 2);
  EXPECT_EQ(schedule.plateau.mode, MetricGoal::kMax);
  EXPECT_EQ(schedule.plateau.factor, 0.5);
  arguments.schedule = {.schedules = {"one-cycle"}, .cycle_momentum = true, .base_momentum = 0.8};
  schedule = resolve(arguments).trainer.schedule;
  EXPECT_TRUE(schedule.cycle_momentum);
  EXPECT_EQ(schedule.base_momentum, 0.8);
  EXPECT_EQ(schedule.max_momentum, 0.95);
  const auto refusal = [&] {
    return testing_support::message_of<ConfigError>([&] { resolve(arguments); });
  };
  arguments.optimizer.momentum = 0;
  EXPECT_EQ(refusal(),
            "train: --cycle-momentum needs an optimizer with momentum; give --momentum above 0, or "
            "--optimizer adam or adamw");
  arguments.optimizer.momentum.reset();
  arguments.schedule.schedules = {"cosine"};
  EXPECT_EQ(refusal(), "train: --cycle-momentum belongs to --schedule one-cycle");
  arguments.schedule = {.schedules = {"one-cycle"}, .max_momentum = 0.9};
  EXPECT_EQ(refusal(), "train: --base-momentum and --max-momentum belong to --cycle-momentum");
}

TEST(TrainSettings, GiveTheTrainerWhatItShallTell) {
  const testing_support::TemporaryDirectory directory;
  TrainArguments arguments;
  arguments.recipe = "mnist";
  EXPECT_EQ(resolve(arguments).trainer.profiler.kind, Profiler::kNone);
  EXPECT_EQ(resolve(arguments).trainer.model_summary_depth, 0);
  const auto refusal = [&] {
    return testing_support::message_of<ConfigError>([&] { resolve(arguments); });
  };
  arguments.limits.model_summary = -2;
  EXPECT_EQ(refusal(), "train: --model-summary must be at least -1, got -2");
  arguments.limits.model_summary = 1;
  arguments.limits.profiler = "advanced";
  EXPECT_EQ(refusal(), "train: --profiler must be one of none, simple, trace, got 'advanced'");
  arguments.limits.profiler = "trace";
  EXPECT_EQ(refusal(), "train: --profiler trace needs --out DIR, where operations.json is written");
  arguments.out = (directory / "run").string();
  arguments.limits.trace_steps = 7;
  arguments.limits.log_histograms_every_n_steps = 3;
  EXPECT_EQ(refusal(), "train: --log-histograms-every-n-steps has no effect without --logger");
  arguments.logger = "csv";
  const TrainerOptions trainer = resolve(arguments).trainer;
  EXPECT_EQ(trainer.model_summary_depth, 1);
  EXPECT_EQ(trainer.log_histograms_every_n_steps, 3);
  EXPECT_EQ(trainer.profiler.kind, Profiler::kTrace);
  EXPECT_EQ(trainer.profiler.trace_steps, 7);
  EXPECT_EQ(trainer.profiler.trace_file, directory / "run/operations.json");
  arguments.limits.profiler = "simple";
  EXPECT_EQ(refusal(), "train: --trace-steps belongs to --trace and --profiler trace");
}

// Errors of the stages name the option that caused them.
TEST(TrainSettings, NameTheOptionOfStagesThatCannotBe) {
  const auto refusal = [](const std::string& recipe, int stages, const std::string& schedule) {
    TrainArguments arguments;
    arguments.recipe = recipe;
    arguments.strategy = "pipeline";
    arguments.stages = stages;
    arguments.schedule.schedules = {schedule};
    return testing_support::message_of<ConfigError>([&] { resolve(arguments); });
  };
  EXPECT_EQ(refusal("mnist", 5, "1f1b"),
            "train: --strategy pipeline, --stages 5: recipe mnist: the number of stages must be "
            "from 1 to 4, got 5");
  EXPECT_EQ(refusal("cifar10", 3, "zbv"),
            "train: --strategy pipeline, --stages 3: Pipeline: the schedule zbv has 2 stages on "
            "each worker, got 3 stages in all");
  EXPECT_EQ(refusal("cifar10", 2, "zbv"),
            "train: --stages 2 by the schedule zbv are all on one worker, where nothing overlaps; "
            "give --stages 4");
}

TEST(TrainSettings, GiveAPipelineTwoWorkers) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  arguments.strategy = "pipeline";
  for (const auto& [schedule, stages] : {std::pair("1f1b", 2), std::pair("zbv", 4),
                                         std::pair("interleaved", 4), std::pair("gpipe", 2)}) {
    arguments.schedule.schedules = {schedule};
    const TrainSettings settings = resolve(arguments);
    EXPECT_EQ(settings.strategy_options.stages, stages) << schedule;
    EXPECT_EQ(settings.devices, 2) << schedule;
  }
}

}  // namespace
}  // namespace lockstep::cli
