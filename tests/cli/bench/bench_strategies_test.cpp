// The options, ways and rows of `lockstep bench step --strategy all`.
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <sstream>
#include <tuple>

#include <nlohmann/json.hpp>

#include <lockstep/bench/strategies/cuts.h>
#include <lockstep/bench/strategies/rows.h>
#include <lockstep/cli/bench/strategies_settings.h>
#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;

std::vector<std::string> names_of(const std::vector<bench::StrategyWay>& ways) {
  std::vector<std::string> names;
  for (const bench::StrategyWay& way : ways) names.push_back(way.name);
  return names;
}

bench::StrategyWay way_named(const std::string& name, const bench::StrategyWork& work = {}) {
  for (const bench::StrategyWay& way : bench::strategy_ways(work)) {
    if (way.name == name) return way;
  }
  ADD_FAILURE() << "no way " << name;
  return {};
}

TEST(StrategyWays, HaveTheSameBatchAndThreads) {
  const bench::StrategyWork work = {.threads = 8, .batch = 64, .micro_batches = 8};
  std::set<std::string> names, schedules;
  for (const bench::StrategyWay& way : bench::strategy_ways(work)) {
    EXPECT_TRUE(names.insert(way.name).second) << way.name;
    EXPECT_EQ(way.ranks * way.threads, way.name == "single-half" ? 4 : 8) << way.name;
    EXPECT_EQ(work.batch % way.batch_shares, 0) << way.name;
    if (way.has_pipeline()) schedules.insert(way.schedule);
  }
  EXPECT_EQ(schedules, (std::set<std::string>{"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"}));
}

TEST(StrategyWays, GiveEachRankAThread) {
  const bench::StrategyWay hybrid =
      way_named("hybrid", {.threads = 2, .batch = 32, .micro_batches = 8});
  EXPECT_EQ(hybrid.ranks, 4);
  EXPECT_EQ(hybrid.threads, 1);
  EXPECT_EQ(hybrid.batch_shares, 2);
  EXPECT_TRUE(way_named("hybrid-sharded").shard_optimizer);
}

TEST(StrategyWays, CutABatchIntoAtMostItsImages) {
  const bench::StrategyWork work = {.threads = 2, .batch = 8, .micro_batches = 8};
  EXPECT_EQ(way_named("pipeline-1f1b", work).micro_batches, 8);
  EXPECT_EQ(way_named("hybrid", work).micro_batches, 4);  // half of the batch
  EXPECT_EQ(way_named("split", work).micro_batches, 1);
  EXPECT_EQ(way_named("single", work).micro_batches, 0);
  EXPECT_EQ(way_named("single-accumulated", work).micro_batches, 8);
  EXPECT_EQ(way_named("single-accumulated", {.threads = 2, .batch = 6}).micro_batches, 6);
  EXPECT_EQ(way_named("pipeline-zbv", work).stages, 4);
  EXPECT_EQ(way_named("pipeline-ranks-1f1b", work).batch_shares, 1);
}

// The formulas of docs/pipelines.md for two workers and eight micro-batches.
TEST(StrategyWays, KnowTheBubbleOfTheirSchedule) {
  const bench::StrategyWork work = {.threads = 2, .batch = 64, .micro_batches = 8};
  EXPECT_DOUBLE_EQ(way_named("split", work).replayed_bubble(), 0.5);
  EXPECT_NEAR(way_named("pipeline-1f1b", work).replayed_bubble(), 1.0 / 9, 1e-12);
  EXPECT_NEAR(way_named("pipeline-interleaved", work).replayed_bubble(), 1.0 / 17, 1e-12);
  EXPECT_NEAR(way_named("pipeline-zb-h1", work).replayed_bubble(), 1.0 / 25, 1e-12);
  EXPECT_DOUBLE_EQ(way_named("ddp", work).replayed_bubble(), 0);
  // A recomputed forward lengthens the backward and fills no gap.
  const bench::StrategyWork again = {
      .threads = 2, .batch = 64, .micro_batches = 8, .recompute = true};
  EXPECT_DOUBLE_EQ(way_named("split", again).replayed_bubble(), 0.5);
  EXPECT_NEAR(way_named("pipeline-1f1b", again).replayed_bubble(), 1.0 / 9, 1e-12);
  EXPECT_NEAR(way_named("pipeline-zb-h1", again).replayed_bubble(), 1.0 / 17, 1e-12);
  // If no backward can be split, ZB-H1 equals 1F1B.
  EXPECT_NEAR(way_named("pipeline-zb-h1", work).replayed_bubble({0, 1}), 1.0 / 9, 1e-12);
}

TEST(StrategyFigures, ArriveFromAnotherProcess) {
  bench::SharedFigures figures(2);
  const pid_t child = fork();
  if (child == 0) {
    figures.at(1).step_ms = 2.5;
    figures.at(1).set_backend("a name that is too long for its place");
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(figures.all()[0].steps, 0);
  EXPECT_DOUBLE_EQ(figures.all()[1].step_ms, 2.5);
  EXPECT_EQ(figures.all()[1].backend_name(), "a name that is ");
}

class StrategySettingsTest : public ::testing::Test {
 protected:
  StrategySettingsTest() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
      environment.set(name, std::nullopt);
    }
    arguments.strategy = "all";
    arguments.threads = 2;
  }
  testing_support::ScopedEnvironment environment;
  BenchStepArguments arguments;
};

TEST_F(StrategySettingsTest, AreTheOtherModeOfBenchStep) {
  for (const char* strategy : {"ddp", "zero1", "ddp,zero1"}) {
    arguments.strategy = strategy;
    EXPECT_FALSE(compares_strategies(arguments)) << strategy;
  }
  for (const char* strategy : {"all", "single", "ddp,dp", "pipelines"}) {
    arguments.strategy = strategy;
    EXPECT_TRUE(compares_strategies(arguments)) << strategy;
  }
}

TEST_F(StrategySettingsTest, HaveDefaultsOfTheModel) {
  bench::BenchStrategiesSettings settings = resolve_strategies(arguments);
  EXPECT_EQ(settings.work.batch, 128);
  EXPECT_EQ(settings.work.micro_batches, 8);
  EXPECT_EQ(settings.image_size, 28);
  EXPECT_EQ(settings.ways.size(), 17U);
  EXPECT_EQ(settings.rounds, 5);
  EXPECT_EQ(settings.cut, "");
  arguments.model = "resnet18";
  settings = resolve_strategies(arguments);
  EXPECT_EQ(settings.work.batch, 32);
  EXPECT_EQ(settings.image_size, 32);
  EXPECT_EQ(settings.cut, "balance");
  arguments.model = "resnet50";
  settings = resolve_strategies(arguments);
  EXPECT_EQ(settings.work.batch, 32);
  EXPECT_EQ(settings.image_size, 64);
  arguments.threads.reset();
  EXPECT_EQ(resolve_strategies(arguments).work.threads % 2, 0);
}

// Every option has a value of its own, so that none can take the place of another.
TEST_F(StrategySettingsTest, HoldWhatTheOptionsSay) {
  arguments.model = "resnet18";
  arguments.backend = "gloo";
  arguments.threads = 4;
  arguments.precision = "bf16";
  arguments.optimizer = "adam";
  arguments.batch = 6;
  arguments.micro_batches = 3;
  arguments.image_size = 48;
  arguments.cut = "even";
  arguments.rounds = 7;
  arguments.steps = 8;
  arguments.timeout_seconds = 9.5;
  const bench::BenchStrategiesSettings settings = resolve_strategies(arguments);
  EXPECT_EQ(settings.model, "resnet18");
  EXPECT_EQ(settings.backend, "gloo");
  EXPECT_EQ(settings.work.threads, 4);
  EXPECT_EQ(settings.precision, "bf16");
  EXPECT_EQ(settings.optimizer, "adam");
  EXPECT_EQ(settings.work.batch, 6);
  EXPECT_EQ(settings.work.micro_batches, 3);
  EXPECT_FALSE(settings.work.recompute);
  EXPECT_EQ(settings.image_size, 48);
  EXPECT_EQ(settings.cut, "even");
  EXPECT_EQ(settings.rounds, 7);
  EXPECT_EQ(settings.steps, 8);
  EXPECT_EQ(settings.timeout, std::chrono::milliseconds(9500));
  arguments.cut.reset();
  EXPECT_EQ(resolve_strategies(arguments).cut, "balance");
}

TEST_F(StrategySettingsTest, TakeTheEndsOfTheirRanges) {
  arguments.model = "resnet18";
  arguments.strategy = "single";
  for (const auto& [threads, batch, micro_batches, image_size] :
       {std::tuple(2, 2, 1, 32), std::tuple(1024, 1'000'000, 1000, 1024)}) {
    arguments.threads = threads;
    arguments.batch = batch;
    arguments.micro_batches = micro_batches;
    arguments.image_size = image_size;
    const bench::BenchStrategiesSettings settings = resolve_strategies(arguments);
    EXPECT_EQ(settings.work.threads, threads);
    EXPECT_EQ(settings.work.batch, batch);
    EXPECT_EQ(settings.work.micro_batches, micro_batches);
    EXPECT_EQ(settings.image_size, image_size);
  }
}

TEST_F(StrategySettingsTest, LetPipelinesRecompute) {
  arguments.recompute = true;
  const bench::BenchStrategiesSettings settings = resolve_strategies(arguments);
  for (const bench::StrategyWay& way : settings.ways) {
    EXPECT_EQ(way.recompute, way.has_pipeline()) << way.name;
  }
  EXPECT_THAT(bench::strategies_text(settings, {}),
              HasSubstr(", 8 micro-batches, recompute\nway "));
}

TEST_F(StrategySettingsTest, ChooseWays) {
  arguments.strategy = "dp,hybrid";
  EXPECT_THAT(names_of(resolve_strategies(arguments).ways),
              ElementsAre("dp-gathered", "dp-on-each", "hybrid", "hybrid-sharded"));
  arguments.only = "hybrid,dp-gathered";
  EXPECT_THAT(names_of(resolve_strategies(arguments).ways), ElementsAre("dp-gathered", "hybrid"));
  arguments.strategy = "all";
  arguments.only = "split,single";
  EXPECT_THAT(names_of(resolve_strategies(arguments).ways), ElementsAre("single", "split"));
}

TEST_F(StrategySettingsTest, NameTheOptionThatIsWrong) {
  struct Case {
    std::function<void(BenchStepArguments&)> spoil;
    const char* error;
  };
  const Case cases[] = {
      {[](auto& a) { a.model = "vgg"; },
       "bench step: --model must be one of mnist, resnet18, resnet50, got 'vgg'"},
      {[](auto& a) { a.strategy = "dpp"; },
       "bench step: --strategy must be one of all, single, dp, ddp, zero1, pipeline, hybrid, got "
       "'dpp'"},
      {[](auto& a) { a.only = "single,fast"; },
       "bench step: --only must be one of single, single-half, single-accumulated, dp-gathered, "},
      {[](auto& a) { a.strategy = "single,dp", a.only = "hybrid"; },
       "bench step: --only must be one of single, single-half, single-accumulated, dp-gathered, "
       "dp-on-each, got 'hybrid'"},
      {[](auto& a) { a.threads = 1026; }, "bench step: --threads must be from 2 to 1024, got 1026"},
      {[](auto& a) { a.batch = 1; }, "bench step: --batch must be from 2 to "},
      {[](auto& a) { a.batch = 1'000'002; }, "bench step: --batch must be from 2 to 1000000, got"},
      {[](auto& a) { a.micro_batches = 1001; }, "--micro-batches must be from 1 to 1000, got 1001"},
      {[](auto& a) { a.model = "resnet50", a.image_size = 1025; },
       "bench step: --image-size must be from 32 to 1024, got 1025"},
      {[](auto& a) { a.model = "resnet50", a.image_size = 31; },
       "bench step: --image-size must be from 32 to 1024, got 31"},
      {[](auto& a) { a.threads = 3; }, "bench step: --threads must be even"},
      {[](auto& a) { a.threads = 1; }, "bench step: --threads must be from 2 to 1024, got 1"},
      {[](auto& a) { a.batch = 9; }, "bench step: --batch must be even"},
      {[](auto& a) { a.batch = 0; }, "bench step: --batch must be from 2 to "},
      {[](auto& a) { a.micro_batches = 0; }, "bench step: --micro-batches must be from 1 to 1000"},
      {[](auto& a) { a.image_size = 32; },
       "bench step: --image-size belongs to --model resnet18 or resnet50"},
      {[](auto& a) { a.model = "resnet18", a.image_size = 8; },
       "bench step: --image-size must be from 32 to 1024, got 8"},
      {[](auto& a) { a.cut = "even"; },
       "bench step: --cut belongs to --model resnet18 or resnet50"},
      {[](auto& a) { a.model = "resnet18", a.cut = "odd"; },
       "bench step: --cut must be one of balance, even, got 'odd'"},
      {[](auto& a) { a.nproc_per_node = 2; }, "remove --nproc-per-node"},
      {[](auto& a) { a.batch_per_rank = 2; }, "give it as --batch"},
      {[](auto& a) { a.bucket_cap_mb = "25"; },
       "bench step: --bucket-cap-mb belongs to --strategy ddp or zero1"},
      {[](auto& a) { a.parameter_memory = "flat"; },
       "bench step: --parameter-memory belongs to --strategy ddp or zero1"},
      {[](auto& a) { a.set_to_none = true; }, "bench step: --set-to-none belongs to "},
      {[](auto& a) { a.find_unused_parameters = true; },
       "bench step: --find-unused-parameters belongs to "},
      {[](auto& a) { a.alone = true; }, "remove --alone"},
      {[](auto& a) { a.precision = "16"; }, "bench step: --precision must be one of 32, bf16"},
      {[](auto& a) { a.optimizer = "lamb"; }, "bench step: --optimizer must be one of "},
      {[](auto& a) { a.backend = "mpi"; }, "bench step: --backend must be one of "},
      {[](auto& a) { a.rounds = 0; }, "bench step: --rounds must be from 1 to "},
      {[](auto& a) { a.steps = 0; }, "bench step: --steps must be from 1 to "},
      {[](auto& a) { a.timeout_seconds = 0; }, "bench step: --timeout must be from "},
      {[](auto& a) { a.json = "none/rows.json"; },
       "bench step: --json: the folder none does not exist; create it first"},
  };
  for (const Case& each : cases) {
    BenchStepArguments wrong = arguments;
    each.spoil(wrong);
    EXPECT_THAT(message_of<ConfigError>([&] { resolve_strategies(wrong); }), HasSubstr(each.error));
  }
}

TEST_F(StrategySettingsTest, RefuseALauncher) {
  environment.set("RANK", "0");
  environment.set("WORLD_SIZE", "2");
  environment.set("LOCAL_RANK", "0");
  environment.set("LOCAL_WORLD_SIZE", "2");
  environment.set("MASTER_ADDR", "127.0.0.1");
  environment.set("MASTER_PORT", "29500");
  EXPECT_THAT(message_of<ConfigError>([&] { resolve_strategies(arguments); }),
              HasSubstr("starts the ranks of each way itself; run it without "));
}

class StrategyRowsTest : public StrategySettingsTest {
 protected:
  StrategyRowsTest() : settings(resolve_strategies(arguments)) {}

  // A round whose steps take `steps`, with as many ranks as the way has.
  bench::StrategyRounds rounds_of(const std::string& name, const std::vector<double>& steps) const {
    bench::StrategyRounds rounds;
    rounds.way = way_named(name, settings.work);
    for (const double step : steps) {
      bench::RankFigures figures;
      figures.steps = 3;
      figures.step_ms = figures.mean_step_ms = step;
      figures.strategy_ms = 0.8 * step;
      figures.processor_ms = step * rounds.way.threads;
      figures.forward_ms = 0.2 * step;
      figures.backward_ms = 0.4 * step;
      figures.start_bytes = 100;
      figures.peak_bytes = 150;
      figures.proportional_bytes = 120;
      figures.set_backend(rounds.way.ranks > 1 ? "shm" : "none");
      rounds.figures.emplace_back(static_cast<std::size_t>(rounds.way.ranks), figures);
    }
    return rounds;
  }

  bench::BenchStrategiesSettings settings;
};

// A round counts its slower rank, and ratios are taken within a round.
TEST_F(StrategyRowsTest, CompareWithSingleRoundByRound) {
  const bench::StrategyRounds single = rounds_of("single", {10, 20, 40});
  bench::StrategyRounds ddp = rounds_of("ddp", {10, 10, 10});
  ddp.figures[1][1].step_ms = 25;
  const bench::StrategyRow row = bench::summarize(settings, ddp, &single);
  EXPECT_THAT(row.rounds_ms, ElementsAre(10, 25, 10));
  EXPECT_DOUBLE_EQ(row.step_ms.median, 10);
  EXPECT_DOUBLE_EQ(row.single_ms->median, 20);
  EXPECT_DOUBLE_EQ(row.ratio->median, 1);        // the median of 1, 0.8 and 4
  EXPECT_DOUBLE_EQ(row.overhead_ms->median, 0);  // the median of 0, 5 and -30
  EXPECT_DOUBLE_EQ(row.samples_per_second, 12800);
  EXPECT_EQ(row.backend, "shm");
  EXPECT_FALSE(bench::summarize(settings, ddp, nullptr).ratio);
}

TEST_F(StrategyRowsTest, CompareWithSingleIfItWasMeasured) {
  bench::StrategyRounds single = rounds_of("single", {20});
  const bench::StrategyRounds ddp = rounds_of("ddp", {10});
  const auto ratio = [&](const std::vector<bench::StrategyRounds>& ways) {
    const std::vector<bench::StrategyRow> rows = bench::summarize(settings, ways);
    EXPECT_EQ(rows.size(), ways.size());
    EXPECT_EQ(rows.front().way.name, "ddp");
    return rows.front().ratio;
  };
  EXPECT_DOUBLE_EQ(ratio({ddp, single})->median, 2);
  EXPECT_FALSE(ratio({ddp}));
  single.why_not = "rank 0: no processor";
  EXPECT_FALSE(ratio({ddp, single}));
}

TEST_F(StrategyRowsTest, AddUpTheMemoryOfAllProcesses) {
  bench::StrategyRounds ddp = rounds_of("ddp", {10});
  ddp.figures[0][1].peak_bytes = 170;
  const bench::StrategyRow row = bench::summarize(settings, ddp, nullptr);
  EXPECT_EQ(row.peak_bytes, 170);
  EXPECT_EQ(row.peak_growth_bytes, 70);
  EXPECT_EQ(row.proportional_bytes, 240);
}

TEST_F(StrategyRowsTest, KnowTheFullestDeviceOfThreads) {
  bench::StrategyRounds threads = rounds_of("pipeline-zb-h1", {10, 10, 10});
  threads.figures[0][0].device_bytes = 5 << 20;
  threads.figures[1][0].device_bytes = 3 << 19;
  threads.figures[2][0].device_bytes = 1 << 20;
  for (auto& ranks : threads.figures) ranks[0].whole_backward = 3;
  const bench::StrategyRow row = bench::summarize(settings, threads, nullptr);
  EXPECT_EQ(row.device_bytes, 3 << 19);
  EXPECT_THAT(row.whole_backward, ElementsAre(0, 1));
  const bench::StrategyRow other = bench::summarize(settings, rounds_of("ddp", {10}), nullptr);
  EXPECT_FALSE(other.device_bytes);
  const auto json = nlohmann::json::parse(bench::to_json(settings, {row, other}));
  EXPECT_EQ(json[0]["device_bytes"], 3 << 19);
  EXPECT_EQ(json[0]["whole_backward"], nlohmann::json::array({0, 1}));
  EXPECT_NEAR(json[0]["bubble_replayed"].get<double>(), 1.0 / 9, 1e-12);
  EXPECT_TRUE(json[1]["device_bytes"].is_null());
  EXPECT_TRUE(json[1]["whole_backward"].is_null());
  EXPECT_THAT(bench::strategies_text(settings, {row, other}),
              HasSubstr("\npipeline-zb-h1: the fullest device holds 1.5 MiB of model, "));
}

TEST_F(StrategyRowsTest, SayWhatLimitsThem) {
  // Two ranks with one thread each, which compute all the time.
  bench::StrategyRounds ddp = rounds_of("ddp", {10});
  EXPECT_DOUBLE_EQ(bench::summarize(settings, ddp, nullptr).utilisation, 1);
  EXPECT_EQ(bench::limit_of(bench::summarize(settings, ddp, nullptr)).what, "processors");
  // Rank 0 waits for rank 1, whose communication is less exposed.
  ddp.figures[0][0].communication_ms = 4;
  ddp.figures[0][1].communication_ms = 1;
  bench::StepLimit limit = bench::limit_of(bench::summarize(settings, ddp, nullptr));
  EXPECT_EQ(limit.what, "communication");
  EXPECT_DOUBLE_EQ(limit.share, 0.1);

  // The workers compute for 6 of the 8 ms that the strategy takes.
  limit = bench::limit_of(bench::summarize(settings, rounds_of("pipeline-1f1b", {10}), nullptr));
  EXPECT_EQ(limit.what, "bubble");
  EXPECT_DOUBLE_EQ(limit.share, 0.25);

  bench::StrategyRounds single = rounds_of("single", {10});
  single.figures[0][0].processor_ms = 15;  // 15 ms of 2 processors x 10 ms
  limit = bench::limit_of(bench::summarize(settings, single, nullptr));
  EXPECT_EQ(limit.what, "idle");
  EXPECT_DOUBLE_EQ(limit.share, 0.25);
}

// A bubble is meaningless if ranks compete for processors.
TEST_F(StrategyRowsTest, HaveNoBubbleWhereRanksShareProcessors) {
  const bench::StrategyRow row = bench::summarize(settings, rounds_of("hybrid", {10}), nullptr);
  EXPECT_EQ(row.processors, 2);
  EXPECT_FALSE(row.bubble);
  EXPECT_EQ(bench::limit_of(row).what, "processors");
  EXPECT_DOUBLE_EQ(row.utilisation, 2);
}

TEST_F(StrategyRowsTest, AreJson) {
  const bench::StrategyRounds single = rounds_of("single", {20});
  bench::StrategyRounds refused;
  refused.way = way_named("hybrid", settings.work);
  refused.why_not = "rank 0: no stages";
  const auto rows = nlohmann::json::parse(bench::to_json(
      settings, {bench::summarize(settings, rounds_of("pipeline-zb-h1", {10}), &single),
                 bench::summarize(settings, refused, &single)}));
  const auto contract = nlohmann::json::parse(R"({"way": "pipeline-zb-h1", "model": "mnist",
      "strategy": "pipeline", "schedule": "zb-h1", "backend": "none", "ranks": 1,
      "threads_per_rank": 2, "batch": 128, "batch_per_rank": 128, "micro_batches": 8, "stages": 2,
      "precision": "32", "step_ms": 10.0, "step_ms_single": 20.0, "overhead_ms": -10.0,
      "ratio_to_single": 2.0, "bubble": 0.25, "bubble_replayed": 0.04, "dp_loss": null,
      "recompute": false, "exposed_ms": null, "why_not": null, "limited_by": "bubble",
      "rounds_ms": [10.0]})");
  for (const auto& [key, value] : contract.items()) {
    ASSERT_TRUE(rows[0].contains(key)) << key;
    if (value.is_number_float()) {
      EXPECT_NEAR(rows[0][key].get<double>(), value.get<double>(), 1e-9) << key;
    } else {
      EXPECT_EQ(rows[0][key], value) << key;
    }
  }
  EXPECT_EQ(rows[1]["way"], "hybrid");
  EXPECT_EQ(rows[1]["why_not"], "rank 0: no stages");
  EXPECT_FALSE(rows[1].contains("step_ms"));
}

TEST_F(StrategyRowsTest, HaveTheQuartilesOfTheirRounds) {
  const bench::StrategyRounds single = rounds_of("single", {20, 20, 60, 40, 60});
  const bench::StrategyRounds ddp = rounds_of("ddp", {10, 20, 30, 40, 60});
  const bench::StrategyRow row = bench::summarize(settings, ddp, &single);
  EXPECT_DOUBLE_EQ(row.overhead_ms->low, -10);  // the rounds: -10, 0, -30, 0 and 0
  EXPECT_DOUBLE_EQ(row.overhead_ms->high, 0);
  // Rounds that are not as many cannot be compared.
  const bench::StrategyRounds shorter = rounds_of("single", {20, 20});
  const bench::StrategyRow alone = bench::summarize(settings, ddp, &shorter);
  const auto json = nlohmann::json::parse(bench::to_json(settings, {row, alone}));
  EXPECT_EQ(json[0]["step_ms_quartiles"], nlohmann::json::array({20.0, 40.0}));
  EXPECT_EQ(json[0]["ratio_to_single_quartiles"], nlohmann::json::array({1.0, 2.0}));
  EXPECT_EQ(json[0]["rounds"], 5);
  EXPECT_EQ(json[0]["steps"], 3);
  EXPECT_EQ(json[0]["utilisation"], 1.0);
  EXPECT_EQ(json[0]["limited_by_share"], 1.0) << "of the processors";
  for (const char* key :
       {"ratio_to_single", "ratio_to_single_quartiles", "step_ms_single", "overhead_ms"}) {
    EXPECT_TRUE(json[1][key].is_null()) << key;
  }
}

// Every figure has a value of its own, so that none can take the place of another.
TEST_F(StrategyRowsTest, ShowEachFigureInItsPlace) {
  constexpr std::int64_t kMiB = 1 << 20;
  const bench::StrategyRounds single = rounds_of("single", {20, 20, 20});
  bench::StrategyRounds ddp = rounds_of("ddp", {8, 10, 16});
  for (std::vector<bench::RankFigures>& ranks : ddp.figures) {
    for (const int rank : {0, 1}) {
      bench::RankFigures& figures = ranks[static_cast<std::size_t>(rank)];
      figures.processor_ms = 7 + 2 * rank;
      figures.forward_ms = 2 + 2 * rank;
      figures.backward_ms = 4 + 2 * rank;
      figures.communication_ms = 4 - 3 * rank;
      figures.optimizer_ms = 1 + rank;
      figures.start_bytes = (10 + rank) * kMiB;
      figures.peak_bytes = (25 + 6 * rank) * kMiB;
      figures.proportional_bytes = (12 + rank) * kMiB;
    }
  }
  const bench::StrategyRow row = bench::summarize(settings, ddp, &single);
  const auto json = nlohmann::json::parse(bench::to_json(settings, {row}))[0];
  const auto expected = nlohmann::json::parse(R"({"image_size": 28, "optimizer": "sgd", "ranks": 2,
      "threads_per_rank": 1, "batch_per_rank": 64, "shard_optimizer": false, "processors": 2,
      "samples_per_second": 12800.0, "processor_ms": 16.0, "utilisation": 0.8, "forward_ms": 3.0,
      "backward_ms": 5.0, "communication_ms": 2.5, "optimizer_ms": 1.5, "exposed_ms": 1.0,
      "limited_by": "communication", "limited_by_share": 0.1, "peak_rss_bytes": 32505856,
      "peak_growth_bytes": 20971520, "proportional_bytes": 26214400, "cuts": null})");
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(json[key], value) << key;
  EXPECT_THAT(bench::strategies_text(settings, {row}),
              ::testing::ContainsRegex("\nddp +2 x 1 +10[.]0 +9[.]00 to 13[.]0 +12,800 +2[.]00 +20 "
                                       "+25 +80% +exposed 10% *\n"));
}

// Micro-batches belong to other ways as well; stages and their cuts belong to pipelines alone.
TEST_F(StrategyRowsTest, HaveStagesOnlyInPipelines) {
  settings.cut = "balance";
  const auto json = nlohmann::json::parse(bench::to_json(
      settings, {bench::summarize(settings, rounds_of("single-accumulated", {10}), nullptr),
                 bench::summarize(settings, rounds_of("pipeline-1f1b", {10}), nullptr)}));
  EXPECT_EQ(json[0]["micro_batches"], 8);
  EXPECT_EQ(json[1]["micro_batches"], 8);
  for (const char* key :
       {"stages", "cut", "recompute", "bubble", "bubble_replayed", "whole_backward"}) {
    EXPECT_TRUE(json[0][key].is_null()) << key;
    EXPECT_FALSE(json[1][key].is_null()) << key;
  }
}

TEST_F(StrategyRowsTest, SpeakOfOneMicroBatch) {
  settings.work.micro_batches = 1;
  bench::StrategyRow crowded = bench::summarize(settings, rounds_of("hybrid", {10}), nullptr);
  crowded.processors = 1;
  const std::string text = bench::strategies_text(settings, {crowded});
  EXPECT_THAT(text, HasSubstr(", 1 micro-batch\nway "));
  EXPECT_THAT(text, HasSubstr("\nhybrid: 4 ranks share 1 processor\n"));
}

// The line about the choice of `balance` was computed in another process.
TEST_F(StrategyRowsTest, SayWhereAModelIsCut) {
  const bench::StageCuts measured = {
      .stages = 4,
      .names = {"layer1.1", "layer2.0", "layer3.0"},
      .about =
          "balance by time: 2 + 1 + 2 + 3 layers, 12.1 + 11.8 + 12.4 "
          "+ 12.2 ms; the largest stage has 1.02 times its share"};
  const bench::StageCuts parsed = bench::parse_stage_cuts(4, bench::note_of(measured));
  EXPECT_EQ(parsed.names, measured.names);
  EXPECT_EQ(parsed.about, measured.about);
  settings.cut = "balance";
  settings.cuts = {{.stages = 2, .names = {"layer2"}, .about = "balance by time: 5 + 3 layers"},
                   parsed};
  const bench::StrategyRow two =
      bench::summarize(settings, rounds_of("pipeline-1f1b", {10}), nullptr);
  const bench::StrategyRow four =
      bench::summarize(settings, rounds_of("pipeline-zbv", {10}), nullptr);
  EXPECT_THAT(bench::strategies_text(settings, {two, four}),
              HasSubstr("\n2 stages, cut after layer2\n  balance by time: 5 + 3 layers\n"
                        "4 stages, cut after layer1.1, layer2.0, layer3.0\n"
                        "  balance by time: 2 + 1 + 2 + 3 layers, 12.1 + 11.8 + 12.4 + 12.2 ms\n"
                        "  the largest stage has 1.02 times its share\n"));
  const auto json = nlohmann::json::parse(bench::to_json(settings, {two, four}));
  EXPECT_EQ(json[0]["cut"], "balance");
  EXPECT_EQ(json[0]["cuts"], nlohmann::json(settings.cuts[0].names));
  EXPECT_EQ(json[1]["cuts"], nlohmann::json(measured.names));
}

TEST_F(StrategyRowsTest, FitATerminal) {
  std::vector<bench::StrategyRow> rows;
  const bench::StrategyRounds single = rounds_of("single", {9876.5, 9999});
  for (const bench::StrategyWay& way : settings.ways) {
    rows.push_back(bench::summarize(settings, rounds_of(way.name, {9876.5, 9999}), &single));
  }
  bench::StrategyRounds refused;
  refused.way = way_named("split", settings.work);
  refused.why_not = std::string(200, 'x');
  rows.push_back(bench::summarize(settings, refused, nullptr));
  const std::string text = bench::strategies_text(settings, rows);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  EXPECT_THAT(text, HasSubstr("mnist, 28x28 images, batch 128, 2 threads, precision 32, sgd, 8 "
                              "micro-batches\nway "));
  EXPECT_THAT(text, HasSubstr("\nsplit                 not possible: xxx"));
  EXPECT_THAT(text, HasSubstr("\nhybrid: 4 ranks share 2 processors\n"));
  EXPECT_THAT(text, HasSubstr("bubble 25%"));
}

}  // namespace
}  // namespace lockstep::cli
