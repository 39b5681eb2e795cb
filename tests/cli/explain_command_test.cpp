// `lockstep explain` as its users see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tests/cli/forked_program.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramResult explain(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {LOCKSTEP_PROGRAM, "explain", "pipeline"});
  return run_forked(arguments);
}

TEST(ExplainCommand, ExplainsASchedule) {
  const TemporaryDirectory folder;
  const ProgramResult result =
      explain({"--schedule", "zb-h1", "--stages", "4", "--micro-batches", "8", "--svg",
               (folder / "zb-h1.svg").string(), "--csv", (folder / "table.csv").string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              StartsWith("zb-h1: 4 stages on 4 workers, 8 micro-batches\n\nreplayed: "));
  EXPECT_THAT(result.out, HasSubstr("worker 0     FFFF...IWFIWFIWFIWFIWIWIWIW\n"));
  EXPECT_THAT(result.out, HasSubstr("drawn in "));
  EXPECT_THAT(read_text(folder / "zb-h1.svg"), StartsWith("<svg "));

  // The program can read the table that it wrote.
  const ProgramResult again = explain({"--table", (folder / "table.csv").string()});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("worker 0     FFFF...IWFIWFIWFIWFIWIWIWIW\n"));
}

TEST(ExplainCommand, MeasuresASchedule) {
  const TemporaryDirectory folder;
  const ProgramResult result =
      explain({"--schedule", "zbv", "--stages", "4", "--micro-batches", "4", "--measured",
               "--width", "64", "--samples", "16", "--steps", "3", "--svg",
               (folder / "measured.svg").string(), "--json", (folder / "measured.json").string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.left_behind, 0);
  EXPECT_THAT(result.out, HasSubstr("\nmeasured: the step that took the median time\n"));
  EXPECT_THAT(result.out, HasSubstr("\nreplayed: the same durations without the waits"));
  EXPECT_THAT(result.out, HasSubstr("KiB"));
  const auto json = nlohmann::json::parse(read_text(folder / "measured.json"));
  EXPECT_EQ(json["workers"], 2);
  EXPECT_EQ(json["stages"], 4);
  EXPECT_GT(json["bubble"].get<double>(), 0);
  EXPECT_LT(json["bubble"].get<double>(), 1);
  EXPECT_GE(json["bubble_replayed"].get<double>(), 0);
  EXPECT_DOUBLE_EQ(json["bubble_formula"].get<double>(), 1.0 / 25);
  EXPECT_THAT(read_text(folder / "measured.svg"), HasSubstr("on worker 1: "));
  EXPECT_EQ(json["worker_bytes"].size(), 2U);
  EXPECT_EQ(json["stage_bytes"].size(), 4U);
  EXPECT_THAT(result.out, HasSubstr("of each stage"));
  EXPECT_THAT(read_text(folder / "measured.svg"), HasSubstr(">stages: "));
  EXPECT_GT(json["executor_ms"].get<double>(), 0);
  EXPECT_GT(json["step_ms"].get<double>(), 0);
  EXPECT_GE(json["over_replay_ms"].get<double>(), 0);
  EXPECT_THAT(result.out, HasSubstr("\nexecutor, what the machinery around the stages takes\n"));
}

TEST(ExplainCommand, MeasuresStagesThatWait) {
  const TemporaryDirectory folder;
  const ProgramResult result =
      explain({"--schedule", "zb-h1", "--stages", "4", "--micro-batches", "4", "--measured",
               "--wait", "500", "--steps", "3", "--json", (folder / "waits.json").string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("; stages wait instead of computing\n"));
  const auto json = nlohmann::json::parse(read_text(folder / "waits.json"));
  EXPECT_EQ(json["workers"], 4);
  EXPECT_EQ(json["wait_us"], 500);
  EXPECT_GT(json["wait_us_mean"].get<double>(), 0);
  EXPECT_GT(json["bubble"].get<double>(), 0);
  EXPECT_FALSE(json.contains("worker_bytes"));
}

TEST(ExplainCommand, SaysInOneLineWhatIsWrongWithItsOptions) {
  struct Case {
    std::vector<std::string> arguments;
    const char* error;
  };
  const Case cases[] = {
      {{"--stage", "4"},
       "error: unknown option '--stage' of lockstep explain pipeline; did you mean '--stages'?\n"},
      {{"--stages", "x"}, "error: --stages: must be a whole number, got 'x'"},
      {{"--schedule", "1F1B"}, "error: explain pipeline: --schedule must be one of gpipe, 1f1b, "},
      {{"--width", "8"}, "error: explain pipeline: --wait, --width, --layers, --samples, "},
  };
  for (const Case& each : cases) {
    const ProgramResult result = explain(each.arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, StartsWith(each.error));
    EXPECT_EQ(result.error_lines(), 1) << result.err;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
