#include <lockstep/cli/bench/table_ways.h>

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchTableArguments table_of(const std::string& recipe) {
  BenchTableArguments arguments;
  arguments.train.recipe = recipe;
  arguments.batch_per_rank = "64";
  return arguments;
}

std::vector<std::string> names_of(const BenchTableSettings& settings) {
  std::vector<std::string> names;
  for (const bench::TableWay& way : settings.ways) names.push_back(bench::name_of(way));
  return names;
}

TEST(TableWays, TakesPowersOfTwoUpToTheProcessorsByDefault) {
  std::vector<std::int64_t> ranks;
  for (const bench::TableWay& way : resolve_table(table_of("mnist"), {.processors = 6}).ways) {
    EXPECT_EQ(way.threads_per_rank, 1);
    ranks.push_back(way.ranks);
  }
  EXPECT_THAT(ranks, ElementsAre(1, 2, 4, 6));
  ranks.clear();
  for (const bench::TableWay& way :
       resolve_table(table_of("mnist"), {.processors = 16, .gpus = 2}).ways) {
    ranks.push_back(way.ranks);
  }
  EXPECT_THAT(ranks, ElementsAre(1, 2));
}

TEST(TableWays, CrossesStrategiesLoadersAndRanks) {
  BenchTableArguments arguments = table_of("mnist");
  arguments.ranks = "1,2";
  arguments.strategies = "ddp,dp";
  arguments.loaders = "native,dali";
  EXPECT_THAT(
      names_of(resolve_table(arguments, {.processors = 2})),
      ElementsAre(
          "single, native, 1 rank, batch per rank 64", "single, dali, 1 rank, batch per rank 64",
          "ddp, native, 2 ranks, batch per rank 64", "ddp, dali, 2 ranks, batch per rank 64",
          "dp, native, 2 ranks, batch per rank 64", "dp, dali, 2 ranks, batch per rank 64"));
}

TEST(TableWays, HasRowsWithAndWithoutOurKernels) {
  BenchTableArguments arguments = table_of("mnist");
  arguments.ranks = "2";
  arguments.kernels = "fused,libtorch";
  const BenchTableSettings settings = resolve_table(arguments, {.processors = 2});
  ASSERT_EQ(settings.ways.size(), 2U);
  EXPECT_FALSE(arguments_of(arguments, settings.ways[0]).no_fused_kernels);
  EXPECT_TRUE(arguments_of(arguments, settings.ways[1]).no_fused_kernels);
}

TEST(TableWays, GivesOneProcessTheThreadsOfAsManyRanks) {
  BenchTableArguments arguments = table_of("mnist");
  arguments.ranks = "2,4";
  arguments.strategies = "single,dp";
  const BenchTableSettings settings = resolve_table(arguments, {.processors = 2});
  EXPECT_THAT(names_of(settings), ElementsAre("single, native, 2 ranks, batch per rank 64",
                                              "dp, native, 2 ranks, batch per rank 64",
                                              "dp, native, 4 ranks, batch per rank 64"));
  EXPECT_THAT(settings.notes, ElementsAre("no row for single, native, 4 ranks, batch per rank 64: "
                                          "one process has no 4 processors here"));
  const TrainArguments single = arguments_of(arguments, settings.ways[0]);
  EXPECT_EQ(single.nproc_per_node, 1);
  EXPECT_EQ(single.threads, 2);
  EXPECT_EQ(single.batch_size, 128);
  EXPECT_FALSE(single.devices);
  const TrainArguments dp = arguments_of(arguments, settings.ways[1]);
  EXPECT_EQ(dp.nproc_per_node, 1);
  EXPECT_EQ(dp.threads, 2);
  EXPECT_EQ(dp.devices, 2);
}

// Every option has a value of its own, so that none can take the place of another.
TEST(TableWays, HoldWhatTheOptionsSay) {
  BenchTableArguments arguments = table_of("mnist");
  arguments.ranks = "2";
  arguments.strategies = "zero1";
  arguments.loaders = "native";
  arguments.batch_per_rank = "5";
  arguments.epochs = 3;
  arguments.rounds = 4;
  arguments.max_steps = 6;
  arguments.train.threads = 7;
  arguments.train.precision = "bf16";
  arguments.train.workers = 8;
  arguments.train.seed = 9;
  arguments.format = "csv";
  arguments.json = "rows.json";
  const BenchTableSettings settings = resolve_table(arguments, {.processors = 2});
  EXPECT_EQ(settings.rounds, 4);
  EXPECT_EQ(settings.format, "csv");
  EXPECT_EQ(settings.json, "rows.json");
  EXPECT_TRUE(settings.notes.empty());
  ASSERT_EQ(settings.ways.size(), 1U);
  const TrainArguments row = arguments_of(arguments, settings.ways[0]);
  EXPECT_EQ(row.recipe, "mnist");
  EXPECT_EQ(row.strategy, "zero1");
  EXPECT_EQ(row.loader, "native");
  EXPECT_EQ(row.max_epochs, 3);
  EXPECT_EQ(row.limits.limit_train_batches, 6);
  EXPECT_EQ(row.limits.limit_val_batches, 0) << "only training is timed";
  EXPECT_EQ(row.batch_size, 10) << "of both ranks";
  EXPECT_EQ(row.threads, 7) << "of each rank";
  EXPECT_EQ(row.nproc_per_node, 2);
  EXPECT_EQ(row.precision, "bf16");
  EXPECT_EQ(row.workers, 8);
  EXPECT_EQ(row.seed, 9U);
  EXPECT_FALSE(row.no_fused_kernels);
  EXPECT_FALSE(row.devices);
  EXPECT_FALSE(row.stages);
  arguments.max_steps.reset();
  EXPECT_FALSE(arguments_of(arguments, settings.ways[0]).limits.limit_train_batches);
}

TEST(TableWays, TakesTheEndsOfItsRanges) {
  BenchTableArguments arguments = table_of("mnist");
  for (const bool largest : {false, true}) {
    arguments.ranks = largest ? "1024" : "1";
    arguments.batch_per_rank = largest ? "1000000" : "1";
    arguments.epochs = largest ? 1'000'000 : 1;
    arguments.rounds = largest ? 1000 : 1;
    arguments.max_steps = largest ? 1'000'000'000 : 1;
    arguments.train.threads = largest ? 4096 : 0;
    arguments.peer_timeout_seconds = largest ? 1e6 : 1;
    const BenchTableSettings settings = resolve_table(arguments, {.processors = 3});
    ASSERT_EQ(settings.ways.size(), 1U);
    EXPECT_EQ(settings.ways[0].threads_per_rank, largest ? 4096 : 3);
    EXPECT_EQ(settings.ways[0].global_batch(), largest ? 1'024'000'000 : 1);
  }
}

TEST(TableWays, CutsPipelinesIntoAStageForEachRank) {
  BenchTableArguments arguments = table_of("cifar10");
  arguments.ranks = "3,4";
  arguments.strategies = "pipeline,hybrid";
  const BenchTableSettings settings = resolve_table(arguments, {.processors = 4});
  EXPECT_THAT(names_of(settings), ElementsAre("pipeline, native, 3 ranks, batch per rank 64",
                                              "pipeline, native, 4 ranks, batch per rank 64",
                                              "hybrid, native, 4 ranks, batch per rank 64"));
  EXPECT_EQ(settings.notes.size(), 1U);
  EXPECT_EQ(arguments_of(arguments, settings.ways[0]).stages, 3);
  EXPECT_EQ(arguments_of(arguments, settings.ways[0]).nproc_per_node, 3);
  EXPECT_FALSE(arguments_of(arguments, settings.ways[2]).stages);
}

TEST(TableWays, PutsAPeerBehindTheRowThatItHas) {
  BenchTableArguments arguments = table_of("mnist");
  arguments.ranks = "1,2";
  arguments.strategies = "ddp,dp,zero1";
  arguments.kernels = "fused,libtorch";
  arguments.with_peers = true;
  arguments.peer_workers = "0,1";
  EXPECT_THAT(names_of(resolve_table(arguments, {.processors = 2})),
              ElementsAre("single, native, 1 rank, batch per rank 64",
                          "single, native, without fused kernels, 1 rank, batch per rank 64",
                          "PyTorch's single, dataloader, 1 rank, batch per rank 64",
                          "PyTorch's single, dataloader with 1 worker, 1 rank, batch per rank 64",
                          "ddp, native, 2 ranks, batch per rank 64",
                          "ddp, native, without fused kernels, 2 ranks, batch per rank 64",
                          "PyTorch's ddp, dataloader, 2 ranks, batch per rank 64",
                          "PyTorch's ddp, dataloader with 1 worker, 2 ranks, batch per rank 64",
                          "dp, native, 2 ranks, batch per rank 64",
                          "dp, native, without fused kernels, 2 ranks, batch per rank 64",
                          "zero1, native, 2 ranks, batch per rank 64",
                          "zero1, native, without fused kernels, 2 ranks, batch per rank 64"));
}

// torch.nn.DataParallel requires GPUs.
TEST(TableWays, HasDataParallelsPeerOnGpus) {
  BenchTableArguments arguments = table_of("mnist");
  arguments.ranks = "2";
  arguments.strategies = "dp";
  arguments.with_peers = true;
  EXPECT_THAT(names_of(resolve_table(arguments, {.processors = 2, .gpus = 2})),
              ElementsAre("dp, native, 2 ranks, batch per rank 64",
                          "PyTorch's dp, dataloader, 2 ranks, batch per rank 64"));
  arguments.train.accelerator = "cpu";
  EXPECT_EQ(resolve_table(arguments, {.processors = 2, .gpus = 2}).ways.size(), 1U);
}

TEST(TableWays, RefusesWhatItCannotMeasure) {
  struct Case {
    std::function<void(BenchTableArguments&)> change;
    const char* text;
  };
  const Case cases[] = {
      {[](auto& to) { to.ranks = "1,x"; },
       "bench table: --ranks: expected whole numbers separated by commas, such as 1,2,4; got "
       "'1,x'"},
      {[](auto& to) { to.ranks = "0"; }, "bench table: --ranks must be from 1 to 1024, got 0"},
      {[](auto& to) { to.ranks = ""; }, "--ranks: expected whole numbers"},
      {[](auto& to) { to.ranks = "1,2,1"; },
       "bench table: --ranks must name each value once, got 1 twice in '1,2,1'"},
      {[](auto& to) { to.batch_per_rank = "64,064"; },
       "bench table: --batch-per-rank must name each value once, got 64 twice in '64,064'"},
      {[](auto& to) { to.strategies = "ddp,ddp"; },
       "bench table: --strategies must name each value once, got ddp twice in 'ddp,ddp'"},
      {[](auto& to) { to.strategies = "ddp,fsdp"; }, "bench table: --strategies must be one of"},
      {[](auto& to) { to.loaders = "numpy"; }, "bench table: --loaders must be one of"},
      {[](auto& to) { to.kernels = "fast"; }, "bench table: --kernels must be one of"},
      {[](auto& to) { to.train.recipe = "cifar10", to.kernels = "fused"; },
       "--kernels has no effect on cifar10"},
      {[](auto& to) { to.peer_workers = "1"; },
       "--peer-workers has no effect without --with-peers"},
      {[](auto& to) { to.format = "xml"; }, "bench table: --format must be one of"},
      {[](auto& to) { to.epochs = 0; }, "bench table: --epochs must be"},
      {[](auto& to) { to.rounds = 0; }, "bench table: --rounds must be"},
      {[](auto& to) { to.max_steps = 0; }, "bench table: --max-steps must be"},
      {[](auto& to) { to.train.threads = -1; }, "bench table: --threads must be"},
      {[](auto& to) { to.train.threads = 4097; }, "--threads must be from 0 to 4096, got 4097"},
      {[](auto& to) { to.ranks = "1025"; }, "--ranks must be from 1 to 1024, got 1025"},
      {[](auto& to) { to.ranks = "1,"; }, "--ranks: expected whole numbers"},
      {[](auto& to) { to.ranks = "99999999999999999999"; }, "--ranks: expected whole numbers"},
      {[](auto& to) { to.batch_per_rank = "0"; }, "--batch-per-rank must be from 1 to 1000000"},
      {[](auto& to) { to.batch_per_rank = "1000001"; }, "--batch-per-rank must be from 1 to 1000"},
      {[](auto& to) { to.loaders = "native,native"; },
       "bench table: --loaders must name each value once, got native twice in 'native,native'"},
      {[](auto& to) { to.kernels = "libtorch,libtorch"; },
       "bench table: --kernels must name each value once, got libtorch twice"},
      {[](auto& to) { to.with_peers = true, to.peer_workers = "1,0,1"; },
       "bench table: --peer-workers must name each value once, got 1 twice in '1,0,1'"},
      {[](auto& to) { to.with_peers = true, to.peer_workers = "1025"; },
       "bench table: --peer-workers must be from 0 to 1024, got 1025"},
      {[](auto& to) { to.with_peers = true, to.train.recipe = "program"; },
       "bench table: --with-peers cannot be combined with recipe program, because PyTorch's "
       "programs train only the recipes' own networks; remove --with-peers"},
      {[](auto& to) {
         to.with_peers = true, to.train.recipe = "classify";
         to.train.of_recipe.program = "net.pt2";
       },
       "bench table: --with-peers cannot be combined with --program, because"},
      {[](auto& to) { to.epochs = 1'000'001; }, "--epochs must be from 1 to 1000000, got 1000001"},
      {[](auto& to) { to.rounds = 1001; }, "--rounds must be from 1 to 1000, got 1001"},
      {[](auto& to) { to.max_steps = 1'000'000'001; }, "--max-steps must be from 1 to 1000000000"},
      {[](auto& to) { to.peer_timeout_seconds = 0.5; }, "bench table: --peer-timeout must be from"},
      {[](auto& to) { to.peer_timeout_seconds = 2e6; }, "bench table: --peer-timeout must be from"},
      {[](auto& to) { to.train.accelerator = "tpu"; }, "bench table: --accelerator must be one of"},
      {[](auto& to) { to.json = "/nowhere/at/all.json"; },
       "bench table: --json: the folder /nowhere/at does not exist"},
      {[](auto& to) { to.strategies = "hybrid", to.ranks = "2"; },
       "there is nothing to measure: no row for hybrid, native, 2 ranks"},
  };
  for (const Case& each : cases) {
    BenchTableArguments arguments = table_of("mnist");
    each.change(arguments);
    try {
      resolve_table(arguments, {.processors = 2});
      ADD_FAILURE() << "accepted: " << each.text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(each.text));
    }
  }
}

}  // namespace
}  // namespace lockstep::cli
