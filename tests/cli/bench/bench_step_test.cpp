// The options and rows of `lockstep bench step`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include <nlohmann/json.hpp>

#include <lockstep/bench/step/rows.h>
#include <lockstep/cli/bench/step_settings.h>
#include <lockstep/core/error.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(BenchStepRows, SpreadsAreQuartiles) {
  const bench::Spread spread = bench::spread_of({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(spread.median, 3);
  EXPECT_DOUBLE_EQ(spread.low, 2);
  EXPECT_DOUBLE_EQ(spread.high, 4);
  EXPECT_DOUBLE_EQ(bench::spread_of({1, 2}).median, 1.5);
  EXPECT_DOUBLE_EQ(bench::spread_of({7}).high, 7);
}

// Two ranks, three rounds. A round counts its slower rank. Differences are taken within a round,
// because their median is not the difference of the medians.
TEST(BenchStepRows, CompareWithinRounds) {
  const bench::StepRounds variant = {{{10, 1, {2, 0}}, {20, 1, {4, 0}}, {30, 1, {6, 0}}},
                                     {{11, 3, {1, 3}}, {19, 3, {1, 3}}, {29, 3, {1, 3}}}};
  const bench::StepRounds single = {{{9, 1, {}}, {10, 1, {}}, {29, 1, {}}},
                                    {{8, 1, {}}, {8, 1, {}}, {8, 1, {}}}};
  const bench::StepRounds in_step = {{{9.5, 1, {}}, {10.5, 1, {}}, {29.5, 1, {}}},
                                     {{9, 1, {}}, {9, 1, {}}, {9, 1, {}}}};
  const bench::BenchStepRow row = bench::summarize({}, variant, &single, &in_step);
  EXPECT_DOUBLE_EQ(row.step_ms.median, 20);
  EXPECT_DOUBLE_EQ(row.step_ms_single->median, 10);
  EXPECT_DOUBLE_EQ(row.overhead_ms->median, 2);  // the median of 2, 10 and 1
  EXPECT_DOUBLE_EQ(row.in_step_overhead_ms->median, 0.5);
  EXPECT_DOUBLE_EQ(row.over_in_step_ms->median, 1.5);
  EXPECT_DOUBLE_EQ(row.exposed_ms->median,
                   0.5);                         // (1 + 0) / 2: rank 0 came last in the second step
  EXPECT_DOUBLE_EQ(row.waited_ms->median, 3.5);  // (4 + 3) / 2
  EXPECT_DOUBLE_EQ(row.cpu_ms.median, 3);
}

TEST(BenchStepRows, AreJson) {
  bench::BenchStepRow row;
  row.model = "mnist";
  row.variant.strategy = "ddp";
  row.variant.bucket_cap_mb = 25;
  row.backend = "shm";
  row.ranks = 2;
  row.threads_per_rank = 1;
  row.batch_per_rank = 64;
  row.precision = "32";
  const bench::StepRounds times = {{{4, 4, {0.25}}}};
  const bench::StepRounds single = {{{3, 4, {}}}};
  auto json =
      nlohmann::json::parse(bench::to_json({bench::summarize(row, times, &single, &single)}));
  const auto contract =
      nlohmann::json::parse(R"({"model": "mnist", "strategy": "ddp", "backend": "shm",
      "ranks": 2, "threads_per_rank": 1, "batch_per_rank": 64, "precision": "32", "step_ms": 4.0,
      "step_ms_single": 3.0, "overhead_ms": 1.0, "exposed_ms": 0.25, "bucket_cap_mb": 25.0,
      "rounds_ms": [4.0], "single_rounds_ms": [3.0]})");
  for (const auto& [key, value] : contract.items()) EXPECT_EQ(json[0][key], value) << key;
  row.variant.bucket_cap_mb.reset();
  json = nlohmann::json::parse(bench::to_json({bench::summarize(row, single, nullptr, nullptr)}));
  for (const char* absent : {"step_ms_single", "overhead_ms", "over_in_step_ms", "bucket_cap_mb",
                             "exposed_ms", "waited_ms"})
    EXPECT_TRUE(json[0].contains(absent) && json[0][absent].is_null()) << absent;
  EXPECT_EQ(bench::table_line(row).size(), bench::bench_step_heading().size());
}

// Every figure has a value of its own, so that none can take the place of another.
TEST(BenchStepRows, ShowEachFigureInItsPlace) {
  const bench::StepRounds variant = {{{10, 4, {2, 0}}, {20, 4, {4, 0}}, {30, 4, {6, 0}}},
                                     {{11, 3, {1, 3}}, {19, 3, {1, 3}}, {29, 3, {1, 3}}}};
  const bench::StepRounds single = {{{9, 1, {}}, {10, 2, {}}, {29, 1, {}}},
                                    {{8, 1.5, {}}, {8, 1.5, {}}, {8, 1.5, {}}}};
  const bench::StepRounds in_step = {{{9.25, 1, {}}, {10.25, 1, {}}, {29.25, 1, {}}},
                                     {{9, 1, {}}, {9, 1, {}}, {9, 1, {}}}};
  bench::BenchStepRow row;
  row.model = "resnet18";
  row.variant = {"zero1", 0.25, "flat", true};
  row.backend = "gloo";
  row.ranks = 2;
  row.threads_per_rank = 6;
  row.batch_per_rank = 5;
  row.precision = "bf16";
  row.optimizer = "adam";
  row.set_to_none = true;
  row.rounds = 3;
  row.steps = 7;
  row.peak_rss_bytes = 111;
  row.proportional_bytes = 99;
  row = bench::summarize(row, variant, &single, &in_step);
  const auto json = nlohmann::json::parse(bench::to_json({row}))[0];
  EXPECT_EQ(json, nlohmann::json::parse(R"({
      "model": "resnet18", "strategy": "zero1", "backend": "gloo", "ranks": 2,
      "threads_per_rank": 6, "batch_per_rank": 5, "precision": "bf16", "step_ms": 20.0,
      "step_ms_single": 10.0, "overhead_ms": 2.0, "overhead_ms_quartiles": [1.5, 6.0],
      "in_step_overhead_ms": 0.25, "over_in_step_ms": 1.75, "over_in_step_ms_quartiles": [1.25, 5.75],
      "exposed_ms": 0.5, "waited_ms": 3.5, "cpu_ms": 4.0, "cpu_ms_single": 1.5, "optimizer": "adam",
      "set_to_none": true, "bucket_cap_mb": 0.25, "parameter_memory": "flat",
      "find_unused_parameters": true, "rounds": 3, "steps": 7, "peak_rss_bytes": 111,
      "proportional_bytes": 99, "rounds_ms": [11.0, 20.0, 30.0],
      "single_rounds_ms": [9.0, 10.0, 29.0], "in_step_rounds_ms": [9.25, 10.25, 29.25]})"));
  EXPECT_THAT(bench::bench_step_heading(),
              MatchesRegex("strategy +bucket +step ms +single +overhead +quartiles +in step "
                           "+exposed"));
  EXPECT_THAT(bench::table_line(row),
              MatchesRegex("zero1, flat, find unused +0[.]25 MiB +20[.]000 +10[.]000 +2[.]000 "
                           "+1[.]500 to 6[.]000 +0[.]250 +0[.]500"));
  row.variant = {"ddp", 25, "as-is", false};
  EXPECT_THAT(bench::table_line(row), MatchesRegex("ddp +25 MiB +20[.]000 .*"));
  row.variant.bucket_cap_mb = 1;
  EXPECT_THAT(bench::table_line(row), MatchesRegex("ddp +1 MiB +20[.]000 .*"));
  row.variant.bucket_cap_mb.reset();
  bench::BenchStepRow alone;
  alone.variant = row.variant;
  EXPECT_THAT(bench::table_line(bench::summarize(alone, single, nullptr, nullptr)),
              MatchesRegex("ddp +whole +10[.]000 +- +- +- +- +-"));
}

class BenchStepSettingsTest : public ::testing::Test {
 protected:
  BenchStepSettingsTest() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
      environment.set(name, std::nullopt);
    }
  }
  testing_support::ScopedEnvironment environment;
};

TEST_F(BenchStepSettingsTest, HaveDefaultsOfTheModel) {
  BenchStepArguments arguments;
  bench::BenchStepSettings settings = resolve(arguments);
  EXPECT_EQ(settings.world_size, 2);
  EXPECT_EQ(settings.batch_per_rank, 64);
  ASSERT_EQ(settings.variants.size(), 1U);
  EXPECT_EQ(settings.variants[0].bucket_cap_mb, 25);
  arguments.model = "resnet18";
  EXPECT_EQ(resolve(arguments).batch_per_rank, 8);
}

TEST_F(BenchStepSettingsTest, MakeARowOfEachVariant) {
  BenchStepArguments arguments;
  arguments.bucket_cap_mb = "1,2.5,whole";
  arguments.find_unused_parameters = true;
  arguments.parameter_memory = "flat";
  const auto variants = resolve(arguments).variants;
  ASSERT_EQ(variants.size(), 6U);
  EXPECT_EQ(variants[2].bucket_cap_mb, 2.5);
  EXPECT_FALSE(variants[4].bucket_cap_mb);
  EXPECT_FALSE(variants[4].find_unused_parameters);
  EXPECT_TRUE(variants[5].find_unused_parameters);
  EXPECT_EQ(variants[5].parameter_memory, "flat");
  arguments.strategy = "zero1,ddp";
  arguments.parameter_memory = "flat,auto";
  EXPECT_EQ(resolve(arguments).variants.size(), 24U);
}

// Every option has a value of its own, so that none can take the place of another.
TEST_F(BenchStepSettingsTest, HoldWhatTheOptionsSay) {
  const testing_support::TemporaryDirectory folder;
  BenchStepArguments arguments;
  arguments.model = "resnet18";
  arguments.backend = "gloo";
  arguments.nproc_per_node = 3;
  arguments.batch_per_rank = 5;
  arguments.threads = 6;
  arguments.precision = "bf16";
  arguments.optimizer = "adam";
  arguments.rounds = 7;
  arguments.steps = 8;
  arguments.timeout_seconds = 9.5;
  arguments.json = (folder / "rows.json").string();
  arguments.trace = (folder / "traces").string();
  arguments.set_to_none = true;
  const bench::BenchStepSettings settings = resolve(arguments);
  EXPECT_EQ(settings.model, "resnet18");
  EXPECT_EQ(settings.backend, "gloo");
  EXPECT_EQ(settings.world_size, 3);
  EXPECT_EQ(settings.batch_per_rank, 5);
  EXPECT_EQ(settings.threads, 6);
  EXPECT_EQ(settings.precision, "bf16");
  EXPECT_EQ(settings.optimizer, "adam");
  EXPECT_EQ(settings.rounds, 7);
  EXPECT_EQ(settings.steps, 8);
  EXPECT_EQ(settings.timeout, std::chrono::milliseconds(9500));
  EXPECT_EQ(settings.json, folder / "rows.json");
  EXPECT_EQ(settings.trace, folder / "traces");
  EXPECT_TRUE(settings.set_to_none);
  EXPECT_FALSE(settings.alone);
  arguments = {};
  arguments.alone = true;
  EXPECT_TRUE(resolve(arguments).alone);
  EXPECT_FALSE(resolve(arguments).set_to_none);
}

TEST_F(BenchStepSettingsTest, NameTheOptionThatIsWrong) {
  struct Case {
    std::function<void(BenchStepArguments&)> spoil;
    const char* error;
  };
  const Case cases[] = {
      {[](auto& a) { a.model = "resnet"; }, "bench step: --model must be one of mnist, resnet18"},
      {[](auto& a) { a.strategy = "dp"; }, "bench step: --strategy must be one of ddp, zero1"},
      {[](auto& a) { a.optimizer = "lamb"; },
       "bench step: --optimizer must be one of sgd, adam, adamw"},
      {[](auto& a) { a.parameter_memory = "flat,round"; },
       "bench step: --parameter-memory must be one of auto, as-is, flat, shared"},
      {[](auto& a) { a.parameter_memory = "flat,shared"; },
       "bench step: --parameter-memory shared is not for --strategy ddp; give auto, flat or as-is"},
      {[](auto& a) { a.strategy = "zero1", a.parameter_memory = "as-is"; },
       "bench step: --parameter-memory as-is is not for --strategy zero1; give auto, flat or "
       "shared"},
      {[](auto& a) { a.backend = "mpi"; }, "bench step: --backend must be one of "},
      {[](auto& a) { a.nproc_per_node = 1; }, "bench step: --nproc-per-node must be from 2 to "},
      {[](auto& a) { a.batch_per_rank = 0; }, "bench step: --batch-per-rank must be from 1 to "},
      {[](auto& a) { a.threads = 0; }, "bench step: --threads must be from 1 to "},
      {[](auto& a) { a.precision = "16"; }, "bench step: --precision must be one of 32, bf16"},
      {[](auto& a) { a.bucket_cap_mb = "1,,2"; },
       "bench step: --bucket-cap-mb: expected sizes in MiB above 0"},
      {[](auto& a) { a.bucket_cap_mb = "0"; },
       "bench step: --bucket-cap-mb: expected sizes in MiB above 0"},
      {[](auto& a) { a.bucket_cap_mb = "25MiB"; },
       "or whole, separated by commas, such as 1,25; got '25MiB'"},
      {[](auto& a) { a.rounds = 0; }, "bench step: --rounds must be from 1 to "},
      {[](auto& a) { a.steps = 0; }, "bench step: --steps must be from 1 to "},
      {[](auto& a) { a.timeout_seconds = 0; }, "bench step: --timeout must be from "},
      {[](auto& a) { a.json = "none/rows.json"; },
       "bench step: --json: the folder none does not exist; create it first"},
      {[](auto& a) { a.batch = 8; },
       "bench step: --batch belongs to --strategy all or a strategy other than ddp and zero1; "
       "use --batch-per-rank"},
      {[](auto& a) { a.micro_batches = 8; },
       "bench step: --micro-batches belongs to --strategy all"},
      {[](auto& a) { a.recompute = true; }, "bench step: --recompute belongs to --strategy all"},
      {[](auto& a) { a.image_size = 64; }, "bench step: --image-size belongs to --strategy all"},
      {[](auto& a) { a.cut = "even"; }, "bench step: --cut belongs to --strategy all"},
      {[](auto& a) { a.only = "ddp"; }, "bench step: --only belongs to --strategy all"},
  };
  for (const Case& each : cases) {
    BenchStepArguments arguments;
    each.spoil(arguments);
    try {
      resolve(arguments);
      ADD_FAILURE() << "no error: " << each.error;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(each.error));
    }
  }
}

}  // namespace
}  // namespace lockstep::cli
