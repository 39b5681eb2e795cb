// `lockstep simulate` as its users see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/cli/train_command.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SimulateCommand : public TrainCommand {
 protected:
  ProgramResult simulate(std::vector<std::string> words) const {
    words.insert(words.begin(), {LOCKSTEP_PROGRAM, "simulate"});
    return run_forked(words);
  }
  void train_run(std::vector<std::string> more) const {
    std::vector<std::string> words = {"mnist", "--max-epochs", "1",     "--batch-size",
                                      "16",    "--threads",    "1",     "--accelerator",
                                      "cpu",   "--overwrite",  "--out", in_scratch("run")};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = train(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
};

TEST_F(SimulateCommand, PredictsFromARunOfItsOwn) {
  train_run({"--nproc-per-node", "2", "--trace"});
  const ProgramResult result = simulate({in_scratch("run"), "--ranks", "1..4096", "--network",
                                         "1gbit", "--json", in_scratch("prediction.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("mnist: a run of ddp on 2 ranks over shm, "));
  EXPECT_THAT(result.out, HasSubstr("\n4096 "));
  EXPECT_THAT(result.out, HasSubstr("\nwhat if, 4096 ranks "));
  EXPECT_THAT(result.out, HasSubstr("\nExtrapolated: the network 1gbit was never measured: "));
  const json prediction = json::parse(read_text(scratch / "prediction.json"));
  ASSERT_EQ(prediction.at("rows").size(), 13U);
  EXPECT_GT(prediction.at("rows").at(0).at("step_ms"), 0);
  EXPECT_LT(prediction.at("rows").at(12).at("interval_ms").at(0),
            prediction.at("rows").at(12).at("step_ms"));
  EXPECT_TRUE(prediction.contains("other_programs"));
  EXPECT_GT(prediction.at("run").at("processors"), 0);
  EXPECT_EQ(prediction.at("run").at("threads_per_rank"), 1);
  EXPECT_GT(prediction.at("rows").at(12).at("step_ms"), prediction.at("rows").at(0).at("step_ms"));
  EXPECT_EQ(prediction.at("run").at("batch_per_rank"), 8);  // on each of two ranks
  EXPECT_NEAR(prediction.at("run").at("buckets").at(0).at("bytes").get<double>(), 87'000, 2'000);

  std::filesystem::remove(scratch / "run/trace.json");
  expect_one_error(simulate({in_scratch("run")}), 1,
                   "run/trace.json: give the folder of a `lockstep train", "no trace");
}

TEST_F(SimulateCommand, SaysInOneLineWhatItCannotSimulate) {
  train_run({"--trace", "--nproc-per-node", "1"});
  expect_one_error(
      simulate({in_scratch("run")}), 1,
      "no buckets of gradients to simulate; train with `lockstep train --strategy ddp`",
      "one process");
  expect_one_error(simulate({in_scratch("none")}), 1,
                   "none does not exist: give the folder of a `lockstep train", "no run");
  expect_one_error(simulate({}), 2, "RUN is required", "no argument");
  expect_one_error(simulate({in_scratch("run"), "--ranks", "4..1"}), 2,
                   "simulate: --ranks: expected numbers of ranks", "ranks");
  expect_one_error(simulate({in_scratch("run"), "--network", "quick"}), 2,
                   "simulate: --network must be 1gbit, ", "network");
  expect_one_error(simulate({in_scratch("run"), "--ranks-per-host", "0"}), 2,
                   "simulate: --ranks-per-host must be from 1 to 1024, got 0", "ranks a host");
  expect_one_error(simulate({in_scratch("run"), "--algorithm", "star"}), 2,
                   "simulate: --algorithm must be one of auto, ring, ", "algorithm");
}

}  // namespace
}  // namespace lockstep::testing_support
