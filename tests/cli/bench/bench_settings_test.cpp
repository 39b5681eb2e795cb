// The options and rows of `lockstep bench comm`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/bench/collectives/rows.h>
#include <lockstep/bench/sizes.h>
#include <lockstep/cli/bench/comm_settings.h>
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <tests/support/messages.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BenchSizes, ReadsWhatPeopleWrite) {
  EXPECT_THAT(bench::parse_sizes("--sizes", "4,4B,4KiB,1.5MiB,2G,64kB,1MB,1TiB"),
              ElementsAre(4, 4, 4096, 1572864, std::int64_t{2} << 30, 64000, 1000000,
                          std::int64_t{1} << 40));
  for (const char* wrong :
       {"", "0", "-4", "4x", "KiB", "1e3", "0.5", "4,,8", "4 KiB", "1KB", "2TiB", "nan"}) {
    try {
      bench::parse_sizes("--sizes", wrong);
      ADD_FAILURE() << wrong;
    } catch (const ConfigError& error) {
      EXPECT_THAT(
          error.what(),
          AllOf(HasSubstr("--sizes: expected sizes from 1 byte to 1TiB, separated by commas, "
                          "such as 4,64KiB,1MiB (units: B, KiB, "),
                HasSubstr("; got '")))
          << wrong;
    }
  }
}

TEST(BenchSizes, KnowsAllUnits) {
  const std::pair<const char*, double> units[] = {
      {"", 1},         {"B", 1},      {"K", 0x1p10},   {"KiB", 0x1p10}, {"M", 0x1p20},
      {"MiB", 0x1p20}, {"G", 0x1p30}, {"GiB", 0x1p30}, {"T", 0x1p40},   {"TiB", 0x1p40},
      {"kB", 1e3},     {"MB", 1e6},   {"GB", 1e9},     {"TB", 1e12}};
  for (const auto& [unit, bytes] : units) {
    EXPECT_EQ(bench::parse_bytes("--bytes", str(1, unit)), static_cast<std::int64_t>(bytes))
        << unit;
  }
  EXPECT_EQ(bench::parse_bytes("--bytes", "0.5KiB"), 512);
  EXPECT_EQ(testing_support::message_of<ConfigError>([] { bench::parse_bytes("--bytes", "2TiB"); }),
            "--bytes: expected a size from 1 byte to 1TiB, such as 64KiB (units: B, KiB, MiB, GiB, "
            "TiB of 1024, kB, MB, GB, TB of 1000); got '2TiB'");
  EXPECT_THAT(
      testing_support::message_of<ConfigError>([] { bench::parse_sizes("--sizes", "4,5x"); }),
      ::testing::EndsWith("; got '5x'"));
}

TEST(BenchSizes, WritesWhatPeopleRead) {
  EXPECT_EQ(bench::binary_bytes_text(0), "0 B");
  EXPECT_EQ(bench::binary_bytes_text(1023), "1023 B");
  EXPECT_EQ(bench::binary_bytes_text(1024), "1 KiB");
  EXPECT_EQ(bench::binary_bytes_text(1572864), "1.5 MiB");
  EXPECT_EQ(bench::binary_bytes_text(3e12), "2794 GiB");
  EXPECT_EQ(bench::binary_bytes_text(99.5 * 1024), "99.5 KiB");
  EXPECT_EQ(bench::binary_bytes_text(100.25 * 1024), "100 KiB");
  EXPECT_EQ(bench::binary_bytes_text(1 << 30), "1 GiB");
  EXPECT_EQ(bench::short_number(0.123), "0.12");
  EXPECT_EQ(bench::short_number(12.34), "12.3");
  EXPECT_EQ(bench::short_number(123.4), "123");
  EXPECT_EQ(bench::short_number(12345), "12,345");
  EXPECT_EQ(bench::short_number(9.25), "9.25");
  EXPECT_EQ(bench::short_number(10), "10.0");
  EXPECT_EQ(bench::short_number(99.5), "99.5");
  EXPECT_EQ(bench::short_number(100), "100");
  EXPECT_EQ(bench::short_number(999), "999");
  EXPECT_EQ(bench::short_number(1000), "1,000");
}

TEST(BenchCommRows, SumUpTheirCalls) {
  const auto row = bench::summarize({.collective = CallKind::kAllReduce, .ranks = 4, .bytes = 4000},
                                    {4, 1, 2, 3});
  EXPECT_DOUBLE_EQ(row.median_us, 2.5);
  EXPECT_DOUBLE_EQ(row.min_us, 1);
  EXPECT_DOUBLE_EQ(row.max_us, 4);
  EXPECT_DOUBLE_EQ(row.algbw_gbps(), 1.6);
  EXPECT_DOUBLE_EQ(row.busbw_gbps(), 2.4);
  EXPECT_DOUBLE_EQ(bench::summarize(row, {3, 1, 2}).median_us, 2);
}

TEST(BenchCommRows, KnowHowManyBytesCrossABus) {
  EXPECT_DOUBLE_EQ(bench::bus_factor(CallKind::kAllReduce, 2), 1);
  EXPECT_DOUBLE_EQ(bench::bus_factor(CallKind::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bench::bus_factor(CallKind::kBroadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bench::bus_factor(CallKind::kBarrier, 4), 0);
}

// In nccl-tests' words, as docs/benchmarks and users of other tools know them.
TEST(BenchCommRows, KnowEachCollective) {
  struct Expected {
    CallKind kind;
    const char* name;
    bool divided;
    bool in_place;
    double factor;  // for four ranks
  };
  const Expected all[] = {{CallKind::kAllReduce, "all_reduce", false, true, 1.5},
                          {CallKind::kBroadcast, "broadcast", false, true, 1},
                          {CallKind::kReduce, "reduce", false, true, 1},
                          {CallKind::kAllGather, "all_gather", true, false, 0.75},
                          {CallKind::kGather, "gather", true, false, 0.75},
                          {CallKind::kScatter, "scatter", true, false, 0.75},
                          {CallKind::kReduceScatter, "reduce_scatter", true, false, 0.75},
                          {CallKind::kAllToAll, "all_to_all", true, false, 0.75},
                          {CallKind::kSend, "send_recv", false, false, 1},
                          {CallKind::kBarrier, "barrier", false, false, 0}};
  std::vector<CallKind> kinds;
  std::vector<std::string> names;
  for (const Expected& each : all) {
    kinds.push_back(each.kind);
    names.emplace_back(each.name);
    EXPECT_EQ(bench::bench_call_from_name(each.name), each.kind) << each.name;
    EXPECT_EQ(bench::is_divided(each.kind), each.divided) << each.name;
    EXPECT_EQ(bench::is_in_place(each.kind), each.in_place) << each.name;
    EXPECT_DOUBLE_EQ(bench::bus_factor(each.kind, 4), each.factor) << each.name;
  }
  EXPECT_EQ(bench::all_bench_calls(), kinds);
  EXPECT_EQ(bench::bench_call_names(), names);
  EXPECT_EQ(bench::bench_call_from_name("send"), std::nullopt) << "half of a message";
}

// Every figure has a value of its own, so that none can take the place of another.
TEST(BenchCommRows, ShowEachFigureInItsPlace) {
  const auto row = bench::summarize({.collective = CallKind::kAllReduce,
                                     .algorithm = "ring",
                                     .backend = "shm",
                                     .ranks = 4,
                                     .hosts = 2,
                                     .processors = 3,
                                     .dtype = "float32",
                                     .bytes = 4'000'000,
                                     .symmetric = true},
                                    {400, 200, 100});
  EXPECT_THAT(bench::bench_comm_heading(),
              ::testing::MatchesRegex("collective +algorithm +size +memory +median us +min us +max "
                                      "us +alg GB/s +bus GB/s"));
  EXPECT_THAT(bench::table_line(row),
              ::testing::MatchesRegex("all_reduce +ring +3[.]8 MiB +symmetric +200 +100 +400 "
                                      "+20[.]0 +30[.]0"));
  EXPECT_EQ(nlohmann::json::parse(bench::to_json({row}))[0], nlohmann::json::parse(R"({
      "collective": "all_reduce", "algorithm": "ring", "backend": "shm", "ranks": 4, "hosts": 2,
      "processors": 3, "dtype": "float32", "bytes": 4000000, "in_place": true, "symmetric": true,
      "median_us": 200.0, "min_us": 100.0, "max_us": 400.0, "algbw_gbps": 20.0,
      "busbw_gbps": 30.0})"));
}

TEST(BenchCommRows, SayWhatCallsTakeFromComputing) {
  bench::BenchCommRow row =
      bench::summarize({.backend = "gloo", .ranks = 2, .dtype = "float32", .bytes = 4}, {100});
  EXPECT_FALSE(nlohmann::json::parse(bench::to_json({row}))[0].contains("beside_us"));
  EXPECT_THAT(bench::table_line(row), ::testing::Not(::testing::HasSubstr("beside")));
  row.beside_us = 150;
  row.taken_us = 60;
  const auto json = nlohmann::json::parse(bench::to_json({row}))[0];
  EXPECT_EQ(json.at("beside_us"), 150);
  EXPECT_EQ(json.at("taken_us"), 60);
  EXPECT_THAT(bench::table_line(row),
              ::testing::HasSubstr("  beside computing 150 us, of which it takes 60"));
}

TEST(BenchCommRows, ShowCallsWithoutASize) {
  const auto row = bench::summarize({.collective = CallKind::kBarrier, .ranks = 2}, {100});
  EXPECT_THAT(bench::table_line(row),
              ::testing::MatchesRegex("barrier +- +private +100 +100 +100 +0.00 +0.00"));
}

TEST(BenchCommRows, AreJson) {
  const auto row = bench::summarize(
      {CallKind::kAllGather, "native", "gloo", 2, 2, 1, "bfloat16", 1 << 20, true}, {100});
  const auto json = nlohmann::json::parse(bench::to_json({row}));
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0], nlohmann::json::parse(R"({"collective": "all_gather", "algorithm": "native",
      "backend": "gloo", "ranks": 2, "hosts": 2, "processors": 1, "dtype": "bfloat16", "bytes": 1048576,
      "in_place": false, "symmetric": true, "median_us": 100.0, "min_us": 100.0,
      "max_us": 100.0, "algbw_gbps": 10.48576, "busbw_gbps": 5.24288})"));
  EXPECT_EQ(bench::table_line(row).size(), bench::bench_comm_heading().size());
}

// Removes the variables of a launcher that started the tests.
class BenchCommSettingsTest : public ::testing::Test {
 protected:
  BenchCommSettingsTest() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
      environment.set(name, std::nullopt);
    }
  }
  testing_support::ScopedEnvironment environment;
};

TEST_F(BenchCommSettingsTest, HaveDefaults) {
  const bench::BenchCommSettings settings = resolve(BenchCommArguments{});
  EXPECT_THAT(settings.collectives, ElementsAre(CallKind::kAllReduce));
  EXPECT_THAT(settings.algorithms, ElementsAre(Algorithm::kAuto));
  EXPECT_EQ(settings.world_size, 2);
  EXPECT_EQ(settings.sizes.size(), 14U);
  EXPECT_EQ(settings.sizes.back(), 256 << 20);
  EXPECT_TRUE(settings.symmetric && settings.private_memory);
  EXPECT_FALSE(settings.explain);
  EXPECT_EQ(settings.sizes.front(), 4);
  EXPECT_EQ(settings.sizes[1], 16);
  EXPECT_EQ(settings.type, detail::DataType::kFloat32);
  EXPECT_EQ(settings.repetitions, 0);
  EXPECT_EQ(settings.seconds, 0.5);
  EXPECT_FALSE(settings.beside_computing);
  EXPECT_TRUE(settings.speaks());
}

TEST_F(BenchCommSettingsTest, TakeListsAndChoices) {
  BenchCommArguments arguments;
  arguments.collective = "send_recv,all_reduce";
  arguments.algorithm = "ring,tree";
  arguments.private_memory = true;
  arguments.dtype = "int16";
  bench::BenchCommSettings settings = resolve(arguments);
  EXPECT_THAT(settings.collectives, ElementsAre(CallKind::kSend, CallKind::kAllReduce));
  EXPECT_THAT(settings.algorithms, ElementsAre(Algorithm::kRing, Algorithm::kTree));
  EXPECT_EQ(settings.type, detail::DataType::kInt16);
  EXPECT_FALSE(settings.symmetric);
  EXPECT_TRUE(settings.private_memory);
  arguments.private_memory = false;
  arguments.symmetric = true;
  EXPECT_TRUE(resolve(arguments).symmetric);
  EXPECT_FALSE(resolve(arguments).private_memory);
  arguments.collective = arguments.algorithm = "all";
  settings = resolve(arguments);
  EXPECT_EQ(settings.collectives.size(), 10U);
  EXPECT_EQ(settings.algorithms.size(), 6U);
}

// Every option has a value of its own, so that none can take the place of another.
TEST_F(BenchCommSettingsTest, HoldWhatTheOptionsSay) {
  const testing_support::TemporaryDirectory folder;
  BenchCommArguments arguments;
  arguments.backend = "gloo";
  arguments.nproc_per_node = 5;
  arguments.sizes = "8,24";
  arguments.repetitions = 7;
  arguments.beside_computing = true;
  arguments.timeout_seconds = 9.5;
  arguments.json = (folder / "rows.json").string();
  arguments.trace = (folder / "traces").string();
  bench::BenchCommSettings settings = resolve(arguments);
  EXPECT_EQ(settings.backend, "gloo");
  EXPECT_EQ(settings.world_size, 5);
  EXPECT_EQ(settings.processors, static_cast<int>(available_cpus().size()));
  EXPECT_THAT(settings.sizes, ElementsAre(8, 24));
  EXPECT_EQ(settings.repetitions, 7);
  EXPECT_TRUE(settings.beside_computing);
  EXPECT_EQ(settings.timeout, std::chrono::milliseconds(9500));
  EXPECT_EQ(settings.json, folder / "rows.json");
  EXPECT_EQ(settings.trace, folder / "traces");
  arguments.repetitions.reset();
  arguments.seconds = 1.25;
  settings = resolve(arguments);
  EXPECT_EQ(settings.repetitions, 0) << "as many as fit";
  EXPECT_EQ(settings.seconds, 1.25);
}

TEST_F(BenchCommSettingsTest, TakeTheEndsOfTheirRanges) {
  BenchCommArguments arguments;
  for (const auto& [ranks, repetitions, timeout] :
       {std::tuple(2, 1, 0.1), std::tuple(127, 1'000'000, 1e6)}) {
    arguments.nproc_per_node = ranks;
    arguments.repetitions = repetitions;
    arguments.timeout_seconds = timeout;
    const bench::BenchCommSettings settings = resolve(arguments);
    EXPECT_EQ(settings.world_size, ranks);
    EXPECT_EQ(settings.repetitions, repetitions);
    EXPECT_EQ(settings.timeout.count(), static_cast<std::int64_t>(timeout * 1000));
  }
  arguments.repetitions.reset();
  for (const double seconds : {0.001, 1e5}) {
    arguments.seconds = seconds;
    EXPECT_EQ(resolve(arguments).seconds, seconds);
  }
}

TEST_F(BenchCommSettingsTest, NameTheOptionThatIsWrong) {
  struct Case {
    std::function<void(BenchCommArguments&)> spoil;
    const char* error;
  };
  const Case cases[] = {
      {[](auto& a) { a.collective = "allreduce"; },
       "bench comm: --collective must be one of all_reduce, "},
      {[](auto& a) { a.algorithm = "rings"; },
       "bench comm: --algorithm must be one of auto, native, "},
      {[](auto& a) { a.backend = "mpi"; }, "bench comm: --backend must be one of "},
      {[](auto& a) { a.nproc_per_node = 1; },
       "bench comm: --nproc-per-node must be from 2 to 127, got 1"},
      {[](auto& a) { a.sizes = "4,x"; },
       "bench comm: --sizes: expected sizes from 1 byte to 1TiB, separated by commas"},
      {[](auto& a) { a.dtype = "complex64"; }, "bench comm: --dtype must be one of float32, "},
      {[](auto& a) { a.nproc_per_node = 128; },
       "bench comm: --nproc-per-node must be from 2 to 127, got 128"},
      {[](auto& a) { a.repetitions = 0; }, "bench comm: --repetitions must be from 1 to "},
      {[](auto& a) { a.repetitions = 1'000'001; }, "--repetitions must be from 1 to 1000000, got"},
      {[](auto& a) { a.seconds = 0; }, "bench comm: --seconds must be from "},
      {[](auto& a) { a.timeout_seconds = 0; }, "bench comm: --timeout must be from "},
      {[](auto& a) { a.out = "x.svg"; }, "bench comm: --out belongs to --explain"},
      {[](auto& a) { a.explain = true, a.algorithm = "native"; },
       "--algorithm of --explain must be one of reduce-"},
      {[](auto& a) { a.explain = true, a.bytes = "much"; },
       "bench comm: --bytes: expected a size from 1 byte to 1TiB, such as 64KiB (units"},
      {[](auto& a) { a.explain = true, a.json = "x.json"; },
       "bench comm: --explain writes no --json"},
      {[](auto& a) { a.explain = true, a.collective = "broadcast"; },
       "bench comm: --explain shows an all_reduce; remove --collective"},
      {[](auto& a) { a.explain = true, a.sizes = "4"; },
       "bench comm: --explain takes one size, as --bytes, not --sizes"},
      {[](auto& a) { a.explain = true, a.symmetric = true; },
       "bench comm: --explain uses memory of each process"},
      {[](auto& a) { a.explain = true, a.private_memory = true; },
       "bench comm: --explain uses memory of each process"},
      {[](auto& a) { a.explain = true, a.trace = "x.json"; },
       "bench comm: --explain is a trace itself; remove --trace"},
      {[](auto& a) { a.explain = true, a.beside_computing = true; },
       "bench comm: --explain waits for its runs; remove --beside-computing"},
      {[](auto& a) { a.explain = true, a.repetitions = 9; },
       "bench comm: --explain makes as many runs as it needs"},
      {[](auto& a) { a.explain = true, a.seconds = 9; },
       "bench comm: --explain makes as many runs as it needs"},
      {[](auto& a) { a.bytes = "1MiB"; }, "bench comm: --bytes belongs to --explain; use --sizes"},
      {[](auto& a) { a.collective = "broadcast,gather", a.algorithm = "ring"; },
       "bench comm: --algorithm is that of all_reduce; add all_reduce to --collective or remove "
       "--algorithm"},
      {[](auto& a) { a.repetitions = 9, a.seconds = 9; },
       "bench comm: --repetitions and --seconds both say how many calls are made"},
      {[](auto& a) { a.json = "none/rows.json"; },
       "bench comm: --json: the folder none does not exist; create it first"},
      {[](auto& a) { a.explain = true, a.out = "none/of/these/ring.svg"; },
       "bench comm: --out: the folder none/of/these does not exist; create it first"},
      {[](auto& a) { a.json = "/proc/rows.json"; }, "cannot write into /proc"},
  };
  for (const Case& each : cases) {
    BenchCommArguments arguments;
    each.spoil(arguments);
    try {
      resolve(arguments);
      ADD_FAILURE() << "no error: " << each.error;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(each.error));
    }
  }
}

TEST_F(BenchCommSettingsTest, ExplainOneAlgorithm) {
  const testing_support::TemporaryDirectory folder;
  BenchCommArguments arguments;
  arguments.explain = true;
  arguments.out = (folder.path() / "ring.svg").string();
  EXPECT_EQ(resolve(arguments).explain->algorithm, Algorithm::kRing);
  arguments.algorithm = "tree";
  arguments.bytes = "64KiB";
  const bench::BenchCommSettings settings = resolve(arguments);
  EXPECT_EQ(settings.explain->algorithm, Algorithm::kTree);
  EXPECT_EQ(settings.explain->bytes, 65536);
  EXPECT_EQ(settings.explain->svg, *arguments.out);
}

TEST_F(BenchCommSettingsTest, FollowALauncher) {
  environment.set("RANK", "1");
  environment.set("WORLD_SIZE", "3");
  environment.set("LOCAL_RANK", "1");
  environment.set("LOCAL_WORLD_SIZE", "3");
  environment.set("MASTER_ADDR", "127.0.0.1");
  environment.set("MASTER_PORT", "29500");
  BenchCommArguments arguments;
  const bench::BenchCommSettings settings = resolve(arguments);
  EXPECT_EQ(settings.world_size, 3);
  EXPECT_FALSE(settings.speaks());
  arguments.nproc_per_node = 2;
  EXPECT_THROW(resolve(arguments), ConfigError);
}

}  // namespace
}  // namespace lockstep::cli
