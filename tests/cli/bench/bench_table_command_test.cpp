// `lockstep bench table` with short runs of two recipes, and with programs in place of PyTorch's.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/clock.h>
#include <tests/cli/train_command.h>
#include <tests/support/colour_folder.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class BenchTableCommand : public TrainCommand {
 protected:
  ProgramResult table(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "bench", "table"};
    words.insert(words.end(), more.begin(), more.end());
    return run_forked(
        words, {{"XDG_CACHE_HOME", in_scratch("cache")}, {"LOCKSTEP_DATA", data.path().string()}});
  }
  // The MNIST net with batches of 8, two steps per epoch, on a processor with one thread per rank.
  ProgramResult short_mnist_table(std::vector<std::string> more) const {
    more.insert(more.begin(), {"mnist", "--batch-per-rank", "8", "--epochs", "1", "--max-steps",
                               "2", "--threads", "1", "--accelerator", "cpu"});
    return table(more);
  }
  nlohmann::json rows_in(const std::string& name) const {
    return nlohmann::json::parse(read_text(scratch / name));
  }
};

TEST_F(BenchTableCommand, TimesEpochsOfAFolderByRanksAndBatches) {
  write_colours(scratch, "photos", 30, 2);
  const Clock::time_point begin = Clock::now();
  const ProgramResult result =
      table({"autoencoder", "--data", in_scratch("photos"), "--image-size", "40", "--ranks", "1,2",
             "--batch-per-rank", "4,6", "--epochs", "2", "--threads", "1", "--format", "csv",
             "--json", in_scratch("table.json")});
  const double seconds = seconds_since(begin);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("recipe,strategy,loader,fused_kernels,device,backend,ranks,"));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 5);
  const nlohmann::json rows = rows_in("table.json");
  ASSERT_EQ(rows.size(), 4U);
  // There are 24 training images.
  const int expected[][3] = {{1, 4, 6}, {2, 4, 3}, {1, 6, 4}, {2, 6, 2}};
  double seconds_to_first_steps = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["ranks"], expected[i][0]);
    EXPECT_EQ(rows[i]["batch_per_rank"], expected[i][1]);
    EXPECT_EQ(rows[i]["iterations_per_epoch"], expected[i][2]);
    EXPECT_EQ(rows[i]["strategy"], expected[i][0] == 1 ? "single" : "ddp");
    for (const char* positive :
         {"epoch_s", "first_epoch_s", "images_per_second", "efficiency", "cpu_utilisation",
          "setup_loader_s", "setup_model_s", "peak_rss_bytes", "seconds_to_first_step"}) {
      EXPECT_GT(rows[i][positive], 0.0) << positive;
    }
    EXPECT_GE(rows[i]["epoch_most_s"], rows[i]["epoch_least_s"]);
    // Ranks meet and synchronise parameters only if there are several.
    EXPECT_EQ(rows[i]["sync_parameters_s"] > 0.0, expected[i][0] > 1);
    seconds_to_first_steps += rows[i]["seconds_to_first_step"].get<double>();
  }
  EXPECT_LT(seconds_to_first_steps, seconds) << "a row's time begins with the row";
  EXPECT_EQ(rows[0]["efficiency"], 1.0);
}

TEST_F(BenchTableCommand, TracesEachRow) {
  const ProgramResult result =
      short_mnist_table({"--ranks", "1,2", "--trace", in_scratch("traces")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* name :
       {"single-native-1-rank-batch-per-rank-8.json", "ddp-native-2-ranks-batch-per-rank-8.json"}) {
    const nlohmann::json trace = rows_in(std::string("traces/") + name);
    std::size_t steps = 0;
    for (const nlohmann::json& event : trace.at("traceEvents")) {
      steps += event.at("ph") == "X" && event.at("cat") == "step" && event.at("pid") == 0 ? 1 : 0;
    }
    EXPECT_EQ(steps, 2U) << name;
  }
}

TEST_F(BenchTableCommand, ComparesStrategiesAndKernels) {
  const ProgramResult result = short_mnist_table(
      {"--ranks", "1,2", "--strategies", "ddp,dp,zero1", "--kernels", "fused,libtorch", "--rounds",
       "2", "--format", "markdown", "--json", in_scratch("table.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("| strategy | loader | kernels | ranks | threads | batch per rank |"),
                    HasSubstr("| single | native | fused | 1 | 1 | 8 | 2 |"),
                    HasSubstr("| zero1 | native | libtorch | 2"),
                    HasSubstr("- An epoch was cut to 2 steps."),
                    HasSubstr("- Seconds are those of the only epoch of each run, "
                              "warm-up included")));
  const nlohmann::json rows = rows_in("table.json");
  ASSERT_EQ(rows.size(), 8U);
  const char* const strategies[] = {"single", "ddp", "dp", "zero1"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["strategy"], strategies[i / 2]);
    EXPECT_EQ(rows[i]["fused_kernels"], i % 2 == 0);
    EXPECT_EQ(rows[i]["ranks"], i < 2 ? 1 : 2);
    EXPECT_EQ(rows[i]["batch_per_rank"], 8);
    EXPECT_EQ(rows[i]["rounds"], 2);
    EXPECT_EQ(rows[i]["epochs"], 1);
    EXPECT_EQ(rows[i]["max_steps"], 2);
    EXPECT_THAT(rows[i]["notes"].get<std::vector<std::string>>(),
                Contains(::testing::EndsWith("; 2 rounds of 1 epoch a row.")));
    EXPECT_GT(rows[i]["efficiency"], 0.0);
  }
}

// Without --threads, a single rank gets as many threads as each of several ranks.
TEST_F(BenchTableCommand, GivesAllRanksEqualThreads) {
  const ProgramResult result =
      table({"mnist", "--ranks", "1,2", "--max-steps", "1", "--batch-per-rank", "4", "--epochs",
             "1", "--json", in_scratch("table.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json rows = rows_in("table.json");
  EXPECT_EQ(rows[0]["threads_per_rank"], rows[1]["threads_per_rank"]);
}

// A shell script takes the place of PyTorch's program. The shell does not understand torchrun's
// arguments, so that the row with two ranks fails.
TEST_F(BenchTableCommand, MeasuresOtherProgramsAndKeepsRowsWhereOneFails) {
  scratch.write("peers/train_epochs.py", R"(
echo "$*" >>"$(dirname "$0")/words"
while [ $# -gt 0 ]; do
  if [ "$1" = --json ]; then report=$2; fi
  shift
done
cat >"$report" <<END
{"recipe": "mnist", "device": "cpu", "backend": "none", "world_size": 1, "threads_per_rank": 1,
 "global_batch": 8, "steps_per_epoch": 2, "torch": "0.1", "seconds_to_first_step": 3,
 "setup_seconds": {"group": 0, "loader": 1, "model": 2, "synchronization": 0}, "peak_rss_bytes": 5,
 "epochs": [{"seconds": 4, "images_per_second": 4, "processor_seconds": 2, "phases": {"data": 1}}]}
END
)");
  const ProgramResult result =
      short_mnist_table({"--ranks", "1,2", "--with-peers", "--peer-python", "sh", "--peers",
                         in_scratch("peers"), "--json", in_scratch("table.json")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("error: bench table: PyTorch's ddp, dataloader, 2 ranks, batch "
                                    "per rank 8 failed: "));
  EXPECT_EQ(result.error_lines(), 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("PyTorch single  dataloader"));
  const nlohmann::json rows = rows_in("table.json");
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1]["peer"], "torch 0.1, dataloader");
  EXPECT_EQ(rows[1]["epoch_s"], 4.0);
  EXPECT_EQ(rows[1]["error"], nullptr);
  EXPECT_EQ(rows[2]["error"], nullptr);
  EXPECT_NE(rows[3]["error"], nullptr);
  EXPECT_EQ(rows[3]["recipe"], "mnist");
  EXPECT_EQ(rows[3]["ranks"], 2);
  EXPECT_EQ(rows[3]["threads_per_rank"], 1);
  EXPECT_EQ(rows[3]["batch_per_rank"], 8);
  EXPECT_EQ(rows[3]["global_batch"], 16);
  const auto notes = rows[0]["notes"].get<std::vector<std::string>>();
  EXPECT_THAT(notes,
              Contains(MatchesRegex("Lockstep with LibTorch [^;]+; torch 0[.]1, dataloader[.]")));
  EXPECT_THAT(notes,
              Contains(MatchesRegex("[0-9]+ processors? .*, [0-9]+ GPUs?; 1 round of 1 epoch "
                                    "a row[.]")));
  EXPECT_THAT(read_text(scratch / "peers/words"),
              MatchesRegex("mnist --strategy single --loader dataloader --workers 0 --threads 1 "
                           "--batch-size 8 --max-epochs 1 --max-steps 2 --accelerator cpu "
                           "--precision 32 --data .* --json .*\n"));
}

// A script in place of Python notes its words, says what a failing program says, and fails.
TEST_F(BenchTableCommand, StartsAPeerOnSeveralRanksByTorchrun) {
  scratch.write("peers/train_epochs.py", "");
  scratch.write("python", R"(#!/bin/sh
echo "$*" >"$(dirname "$0")/words"
printf 'Traceback\n  in line 1\nValueError: no GPU\n\n=====\n'
exit 3
)");
  std::filesystem::permissions(scratch / "python", std::filesystem::perms::owner_all);
  const ProgramResult result =
      short_mnist_table({"--ranks", "2", "--with-peers", "--peer-python", in_scratch("python"),
                         "--peers", in_scratch("peers"), "--peer-workers", "3"});
  expect_one_error(
      result, 1,
      "error: bench table: PyTorch's ddp, dataloader with 3 workers, 2 ranks, batch per "
      "rank 8 failed: ValueError: no GPU\n",
      "a peer");
  EXPECT_THAT(read_text(scratch / "words"),
              MatchesRegex("-m torch.distributed.run --standalone --nproc-per-node 2 "
                           ".*/peers/train_epochs.py mnist --strategy ddp --loader dataloader "
                           "--workers 3 --threads 1 --batch-size 16 --max-epochs 1 --max-steps 2 "
                           "--accelerator cpu --precision 32 --data .* --json .*\n"));
}

TEST_F(BenchTableCommand, EndsAPeerThatHangs) {
  scratch.write("peers/train_epochs.py", "sleep 600\n");
  const ProgramResult result =
      short_mnist_table({"--ranks", "1", "--with-peers", "--peer-python", "sh", "--peers",
                         in_scratch("peers"), "--peer-timeout", "1"});
  expect_one_error(result, 1, "failed: it did not end within 1 s (--peer-timeout)", "hangs");
}

TEST_F(BenchTableCommand, RefusesBadUsageBeforeItMeasures) {
  expect_one_error(table({"autoencoder"}), 2, "autoencoder: give --data DIR", "no folder");
  expect_one_error(table({"mnist", "--ranks", "1,x"}), 2,
                   "--ranks: expected whole numbers separated by commas, such as 1,2,4; got '1,x'",
                   "ranks");
  expect_one_error(table({"mnist", "--ranks", "1,1"}), 2,
                   "bench table: --ranks must name each value once, got 1 twice in '1,1'", "twice");
  expect_one_error(table({"mnist", "--strategies", "pipeline", "--ranks", "2,9"}), 2, "--stages 9",
                   "too many stages");
  expect_one_error(table({"mnist", "--with-peers", "--peers", in_scratch("none")}), 2,
                   "bench table: --with-peers finds no train_epochs.py in", "no peers");
  scratch.write("peers/train_epochs.py", "");
  expect_one_error(table({"mnist", "--with-peers", "--peers", in_scratch("peers"), "--peer-python",
                          "no-such-python"}),
                   2, "bench table: --peer-python: there is no program 'no-such-python' in PATH",
                   "no python");
  expect_one_error(
      table({"cifar10", "--with-peers", "--peers", in_scratch("peers"), "--peer-python", "sh"}), 2,
      "bench table: --with-peers needs the files of cifar10, which are not here; give --data DIR, "
      "or `lockstep data get cifar10`",
      "no data");
  expect_one_error(
      run_forked({LOCKSTEP_PROGRAM, "bench", "table", "mnist"}, {{"RANK", "0"},
                                                                 {"WORLD_SIZE", "2"},
                                                                 {"LOCAL_RANK", "0"},
                                                                 {"LOCAL_WORLD_SIZE", "2"},
                                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                                 {"MASTER_PORT", "29511"}}),
      2, "bench table: it starts its ranks itself; run it without a launcher", "a launcher");
}

}  // namespace
}  // namespace lockstep::testing_support
