// `lockstep bench step --strategy all` as its users see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/core/strings.h>
#include <tests/cli/forked_program.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramResult compare(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {LOCKSTEP_PROGRAM, "bench", "step"});
  return run_forked(arguments);
}

std::map<std::string, nlohmann::json> rows_by_way(const std::filesystem::path& file) {
  std::map<std::string, nlohmann::json> rows;
  for (const auto& row : nlohmann::json::parse(read_text(file))) {
    rows.emplace(row["way"].get<std::string>(), row);
  }
  return rows;
}

TEST(BenchStrategiesCommand, MeasuresEachWayInItsOwnProcesses) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows";
  const ProgramResult result =
      compare({"--strategy", "all", "--only",
               "single,single-half,single-accumulated,dp-on-each,ddp,zero1,split,pipeline-zb-h1,"
               "pipeline-zbv,pipeline-ranks-1f1b,hybrid-sharded",
               "--batch", "8", "--micro-batches", "4", "--threads", "2", "--rounds", "1", "--steps",
               "1", "--json", file.string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // Other tests may keep the machine busy, which the program then reports.
  EXPECT_THAT(result.err, AnyOf("", StartsWith("note: Other programs used ")));
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.out, StartsWith("mnist, 28x28 images, batch 8, 2 threads, precision 32, sgd"));
  EXPECT_THAT(result.out, HasSubstr("\nhybrid-sharded: 4 ranks share 2 processors\n"));
  const auto rows = rows_by_way(file);
  ASSERT_EQ(rows.size(), 11U);
  for (const auto& [way, row] : rows) {
    ASSERT_TRUE(row["why_not"].is_null()) << way << ": " << row["why_not"];
    EXPECT_GT(row["step_ms"], 0) << way;
    EXPECT_GT(row["step_ms_single"], 0) << way;
    EXPECT_GT(row["processor_ms"], 0) << way;
    EXPECT_GT(row["forward_ms"], 0) << way;
    EXPECT_GT(row["backward_ms"], 0) << way;
    EXPECT_GT(row["peak_growth_bytes"], 0) << way;
    EXPECT_LT(row["peak_growth_bytes"], row["peak_rss_bytes"]) << way;
    EXPECT_GT(row["proportional_bytes"], 0) << way;
    EXPECT_EQ(row["steps"], 1) << way;
    EXPECT_EQ(row["backend"], row["ranks"] == 1 ? "none" : "shm") << way;
    EXPECT_EQ(row["bubble"].is_number(), row["strategy"] == "pipeline") << way;
    EXPECT_EQ(row["exposed_ms"].is_number(), way == "ddp" || way == "zero1") << way;
    EXPECT_EQ(row["device_bytes"].is_number(), row["strategy"] == "pipeline" && row["ranks"] == 1)
        << way;
  }
  EXPECT_DOUBLE_EQ(rows.at("single")["ratio_to_single"].get<double>(), 1);
  EXPECT_EQ(rows.at("ddp")["batch_per_rank"], 4);
  EXPECT_EQ(rows.at("hybrid-sharded")["micro_batches"], 4);
  EXPECT_EQ(rows.at("single-accumulated")["micro_batches"], 4);
  EXPECT_TRUE(rows.at("single")["micro_batches"].is_null());
  // At least half of the net's 21,840 float32 parameters, with gradients and momentum.
  for (const char* way : {"split", "pipeline-zb-h1", "pipeline-zbv"}) {
    EXPECT_GT(rows.at(way)["device_bytes"], 3 * 4 * 21840 / 2) << way;
    EXPECT_LT(rows.at(way)["device_bytes"], 100 << 20) << way;
  }
  // The net's convolutions compute their backward as a whole, with two stages and with four.
  for (const char* way : {"pipeline-zb-h1", "pipeline-zbv"}) {
    EXPECT_EQ(rows.at(way)["whole_backward"], nlohmann::json::array({0, 1})) << way;
  }
  EXPECT_TRUE(rows.at("split")["whole_backward"].empty());
  // One stage computes while the other waits.
  EXPECT_GE(rows.at("split")["bubble"], 0.4);
}

TEST(BenchStrategiesCommand, TrainsAResNet) {
  const TemporaryDirectory folder;
  const auto file = folder / "rows";
  const ProgramResult result =
      compare({"--model",     "resnet18",    "--strategy",
               "dp,pipeline", "--only",      "dp-gathered,pipeline-interleaved",
               "--batch",     "4",           "--micro-batches",
               "2",           "--threads",   "2",
               "--rounds",    "1",           "--steps",
               "1",           "--precision", "bf16",
               "--optimizer", "adamw",       "--recompute",
               "--json",      file.string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto rows = rows_by_way(file);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows.at("pipeline-interleaved")["stages"], 4);
  EXPECT_EQ(rows.at("pipeline-interleaved")["image_size"], 32);
  EXPECT_EQ(rows.at("pipeline-interleaved")["recompute"], true);
  EXPECT_TRUE(rows.at("dp-gathered")["recompute"].is_null());
  // The measurements of `balance` are printed, and the stages are cut accordingly.
  const auto cuts = rows.at("pipeline-interleaved")["cuts"].get<std::vector<std::string>>();
  EXPECT_EQ(cuts.size(), 3U);
  EXPECT_THAT(result.out,
              HasSubstr("\n4 stages, cut after " + join(cuts) + "\n  balance by time: "));
  EXPECT_THAT(result.out, HasSubstr(" ms\n  the largest stage has "));
  EXPECT_EQ(rows.at("dp-gathered")["dp_loss"], "gathered");
  EXPECT_TRUE(rows.at("dp-gathered")["ratio_to_single"].is_null());
}

TEST(BenchStrategiesCommand, SaysInOneLineWhatIsWrongWithItsOptions) {
  struct Case {
    std::vector<std::string> arguments;
    const char* error;
  };
  const Case cases[] = {
      {{"--strategy", "all", "--only", "quick"},
       "error: bench step: --only must be one of single, "},
      {{"--strategy", "all", "--bucket-cap-mb", "1"},
       "error: bench step: --bucket-cap-mb belongs to --strategy ddp or zero1\n"},
      {{"--recompute"},
       "error: bench step: --recompute belongs to --strategy all or a strategy other than ddp "
       "and zero1\n"},
      {{"--batch", "8"},
       "error: bench step: --batch belongs to --strategy all or a strategy other than ddp and "
       "zero1; use --batch-per-rank\n"},
      {{"--strategy", "all", "--batch", "x"}, "error: --batch: must be a whole number, got 'x'"},
  };
  for (const Case& each : cases) {
    const ProgramResult result = compare(each.arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, StartsWith(each.error));
    EXPECT_EQ(result.error_lines(), 1) << result.err;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
