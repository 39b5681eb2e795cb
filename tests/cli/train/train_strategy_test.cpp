// How `lockstep train` resolves the options of its strategies.
#include <lockstep/cli/train/train_settings.h>

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/comm/call/backend_names.h>
#include <lockstep/core/error.h>
#include <lockstep/data/loader/loader_options.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>
#include <lockstep/train/optimization/matmul_precision.h>
#include <lockstep/train/optimization/on_nan.h>
#include <lockstep/train/optimization/precision.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>

namespace lockstep::cli {
namespace {

TrainArguments arguments_with(const char* strategy, int processes) {
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  arguments.strategy = strategy;
  arguments.nproc_per_node = processes;
  return arguments;
}

TEST(TrainStrategy, OfHybridsMayShardTheOptimizer) {
  TrainArguments arguments = arguments_with("hybrid", 4);
  EXPECT_FALSE(resolve(arguments).strategy_options.shard_optimizer);
  arguments.shard_optimizer = true;
  EXPECT_TRUE(resolve(arguments).strategy_options.shard_optimizer);
}

TEST(TrainStrategy, GivesPipelinesTheirStages) {
  for (const auto& [strategy, processes] : {std::pair("pipeline", 2), std::pair("hybrid", 4)}) {
    TrainArguments arguments = arguments_with(strategy, processes);
    const StrategyOptions usual = resolve(arguments).strategy_options;
    EXPECT_EQ(usual.micro_batches, StrategyOptions{}.micro_batches) << strategy;
    EXPECT_EQ(usual.stages, 2) << strategy;
    arguments.micro_batches = 6;
    arguments.stages = 6;
    arguments.schedule.schedules = {"interleaved"};
    // Each worker has two of the six stages.
    const auto refusal = [&] {
      return testing_support::message_of<ConfigError>([&] { resolve(arguments); });
    };
    EXPECT_THAT(refusal(), testing::HasSubstr("by the schedule interleaved needs")) << strategy;
    arguments.stages = 4;
    const TrainSettings given = resolve(arguments);
    EXPECT_EQ(given.strategy_options.micro_batches, 6) << strategy;
    EXPECT_EQ(given.strategy_options.stages, 4) << strategy;
    EXPECT_EQ(given.strategy_options.schedule, schedule_named("interleaved")) << strategy;
    EXPECT_TRUE(given.has_pipeline) << strategy;
    EXPECT_FALSE(given.on_several_devices) << strategy;
    EXPECT_EQ(given.data_shares, processes / 2) << strategy;
  }
}

TEST(TrainStrategy, GivesReplicasTheirBuckets) {
  for (const char* strategy : {"ddp", "zero1"}) {
    TrainArguments arguments = arguments_with(strategy, 2);
    const TrainSettings usual = resolve(arguments);
    EXPECT_FALSE(usual.strategy_options.sync_batchnorm) << strategy;
    EXPECT_FALSE(usual.strategy_options.bucket_cap_mb) << strategy;
    EXPECT_FALSE(usual.has_pipeline || usual.on_several_devices) << strategy;
    EXPECT_EQ(usual.data_shares, 2) << strategy;
    arguments.sync_batchnorm = true;
    arguments.bucket_cap_mb = 0.5;
    const StrategyOptions given = resolve(arguments).strategy_options;
    EXPECT_TRUE(given.sync_batchnorm) << strategy;
    EXPECT_EQ(given.bucket_cap_mb, 0.5) << strategy;
  }
}

TEST(TrainStrategy, GivesDpItsDevicesAndItsLoss) {
  TrainArguments arguments = arguments_with("dp", 1);
  const TrainSettings usual = resolve(arguments);
  EXPECT_EQ(usual.strategy_options.dp_loss, DpLoss::kGathered);
  EXPECT_FALSE(usual.devices) << "the strategy chooses their number";
  EXPECT_TRUE(usual.on_several_devices);
  arguments.devices = 3;
  arguments.dp_loss = "on-each";
  EXPECT_EQ(resolve(arguments).strategy_options.dp_loss, DpLoss::kOnEach);
  EXPECT_EQ(resolve(arguments).devices, 3);
  arguments.dp_loss = "gathered";
  EXPECT_EQ(resolve(arguments).strategy_options.dp_loss, DpLoss::kGathered);
  arguments.devices.reset();
  arguments.device_weights = "1000000";
  EXPECT_EQ(resolve(arguments).strategy_options.device_weights, (std::vector<double>{1e6}));
  arguments.device_weights = "1000001";
  EXPECT_THROW(resolve(arguments), ConfigError);
}

TEST(TrainStrategy, TakesItsRanksFromALauncher) {
  testing_support::ScopedEnvironment environment;
  const std::pair<const char*, const char*> variables[] = {{"RANK", "2"},
                                                           {"WORLD_SIZE", "4"},
                                                           {"LOCAL_RANK", "0"},
                                                           {"LOCAL_WORLD_SIZE", "2"},
                                                           {"MASTER_ADDR", "127.0.0.1"},
                                                           {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : variables) environment.set(name, value);
  TrainArguments arguments;
  arguments.recipe = "cifar10";
  arguments.workers = 5;
  for (const auto& [rank, local_rank] : {std::pair("2", "0"), std::pair("0", "0")}) {
    environment.set("RANK", rank);
    environment.set("LOCAL_RANK", local_rank);
    const TrainSettings settings = resolve(arguments);
    ASSERT_TRUE(settings.worker);
    EXPECT_EQ(settings.worker->rank, std::stoi(rank));
    EXPECT_EQ(settings.world_size, 4);
    EXPECT_EQ(settings.data_shares, 4);
    EXPECT_EQ(settings.strategy, "ddp");
    EXPECT_EQ(settings.batch_per_rank, settings.global_batch / 4);
    EXPECT_EQ(settings.workers_per_rank, 2);
    EXPECT_EQ(settings.speaks(), settings.worker->rank == 0);
  }
  arguments.nproc_per_node = 2;
  EXPECT_EQ(resolve(arguments).world_size, 4) << "as many as the launcher started on this host";
  arguments.nproc_per_node = 3;
  EXPECT_THAT(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
              testing::StartsWith("train: --nproc-per-node 3 contradicts "));
}

// A wrong name is found before any rank exists, and the message lists the right ones.
TEST(TrainNames, AreListedWhereOneIsWrong) {
  struct Case {
    std::function<void(TrainArguments&)> change;
    std::string option;
    std::vector<std::string> names;
  };
  const Case cases[] = {
      {[](auto& a) { a.backend = "?"; }, "--backend", comm::backend_names()},
      {[](auto& a) { a.loader = "?"; }, "--loader", loader_engine_names()},
      {[](auto& a) { a.precision = "?"; }, "--precision", precision_names()},
      {[](auto& a) { a.strategy = "?"; }, "--strategy", strategy_names()},
      {[](auto& a) { a.strategy = "dp", a.dp_loss = "?"; }, "--dp-loss", dp_loss_names()},
      {[](auto& a) { a.matmul_precision = "?"; }, "--matmul-precision", matmul_precision_names()},
      {[](auto& a) { a.memory_format = "?"; }, "--memory-format", {"channels-last", "contiguous"}},
      {[](auto& a) { a.accelerator = "?"; }, "--accelerator", {"auto", "cpu", "cuda"}},
      {[](auto& a) { a.on_corrupt_image = "?"; }, "--on-corrupt-image", {"stop", "skip"}},
      {[](auto& a) { a.limits.on_nan = "?"; }, "--on-nan", on_nan_names()},
  };
  for (const Case& each : cases) {
    TrainArguments arguments;
    arguments.recipe = "cifar10";
    each.change(arguments);
    EXPECT_EQ(testing_support::message_of<ConfigError>([&] { resolve(arguments); }),
              lockstep::str("train: ", each.option, " must be one of ", lockstep::join(each.names),
                            ", got '?'"));
  }
  for (const std::string& backend : comm::backend_names()) {
    TrainArguments arguments;
    arguments.recipe = "cifar10";
    arguments.backend = backend;
    EXPECT_EQ(resolve(arguments).backend, backend);
  }
}

TEST(TrainNames, ReachTheSettings) {
  TrainArguments arguments;
  arguments.recipe = "classify";
  arguments.data = "photos";
  const TrainSettings usual = resolve(arguments);
  EXPECT_EQ(usual.loader, LoaderEngineKind::kNative);
  EXPECT_EQ(usual.on_corrupt_image, OnCorruptImage::kStop);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(usual.mix));
  EXPECT_EQ(usual.precision, Precision::k32);
  EXPECT_EQ(usual.decoding, ImageReader::Decoding::kExact);
  EXPECT_EQ(usual.max_image_pixels, kMaxImagePixels);
  EXPECT_EQ(usual.accelerator, "auto");
  EXPECT_EQ(usual.data, "photos");
  EXPECT_EQ(usual.seed, 0U);
  EXPECT_TRUE(usual.fused_kernels);
  arguments.on_corrupt_image = "skip";
  arguments.mix = "mixup";
  arguments.precision = "bf16";
  arguments.decoding = "scaled";
  arguments.max_image_pixels = 5;
  arguments.accelerator = "cpu";
  const TrainSettings given = resolve(arguments);
  EXPECT_EQ(given.on_corrupt_image, OnCorruptImage::kSkip);
  EXPECT_TRUE(std::holds_alternative<MixUp>(given.mix));
  EXPECT_EQ(given.precision, Precision::kBf16);
  EXPECT_EQ(given.decoding, ImageReader::Decoding::kScaled);
  EXPECT_EQ(given.max_image_pixels, 5);
  EXPECT_EQ(given.accelerator, "cpu");
  TrainArguments digits;
  digits.recipe = "mnist";
  digits.loader = "cuda";
  EXPECT_EQ(resolve(digits).loader, LoaderEngineKind::kCuda);
  digits.loader = "native";
  EXPECT_TRUE(resolve(digits).fused_kernels);
  digits.no_fused_kernels = true;
  EXPECT_FALSE(resolve(digits).fused_kernels);
}

}  // namespace
}  // namespace lockstep::cli
