// The folder of a run of `lockstep train`: which checkpoints it keeps, and what happens when
// another run resumes from it or replaces it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/strings.h>
#include <tests/cli/program_run.h>
#include <tests/cli/train_command.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

TEST_F(TrainCommand, ToldOfAnotherMixWhenItGoesOn) {
  const std::vector<std::string> first = {"mnist", "--max-steps", "1",     "--batch-size",     "4",
                                          "--mix", "mixup",       "--out", in_scratch("mixed")};
  ASSERT_EQ(train(first).exit_code, 0);
  std::vector<std::string> second = first;
  second[2] = "2";
  second.push_back("--resume");
  EXPECT_THAT(train(second).err, ::testing::Not(::testing::HasSubstr("does not repeat")));
  second[2] = "3";
  second[6] = "cutmix";
  EXPECT_THAT(train(second).err, ::testing::HasSubstr("mix MixUp(alpha=1) (now CutMix(alpha=1))"));
  second[2] = "4";
  second.push_back("--no-fused-kernels");  // agrees with the fused kernels only up to rounding
  EXPECT_THAT(train(second).err, ::testing::HasSubstr("fused_kernels yes (now no)"));
}

TEST_F(TrainCommand, TrainsReportsAndResumes) {
  const std::vector<std::string> common = {"mnist",
                                           "--nproc-per-node",
                                           "2",
                                           "--threads",
                                           "1",
                                           "--batch-size",
                                           "16",
                                           "--schedule",
                                           "constant",
                                           "--out",
                                           in_scratch("run"),
                                           "--json",
                                           in_scratch("r.json")};
  auto first = common;
  first.insert(first.end(), {"--max-epochs", "1"});
  ProgramResult result = execute(first);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.left_behind, 0);
  const auto report = nlohmann::json::parse(read_text(scratch / "r.json"));
  EXPECT_EQ(report["world_size"], 2);
  EXPECT_EQ(report["strategy"], "ddp");
  EXPECT_EQ(report["backend"], "shm");
  EXPECT_EQ(report["global_batch"], 16);
  EXPECT_EQ(report["epochs"].size(), 1U);
  EXPECT_GT(report["seconds_to_first_step"], 0.0);

  auto second = common;
  second.insert(second.end(), {"--max-epochs", "3", "--resume"});
  result = execute(second);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto resumed = nlohmann::json::parse(read_text(scratch / "r.json"));
  ASSERT_EQ(resumed["epochs"].size(), 2U);
  EXPECT_EQ(resumed["epochs"][0]["epoch"], 2);
  EXPECT_THAT(result.out, HasSubstr("\nresumes from " + in_scratch("run/checkpoints/step-")));
  EXPECT_THAT(result.out, HasSubstr(" at epoch 2\n"));
  // The table and the record are those of the whole run.
  EXPECT_THAT(result.out, ::testing::ContainsRegex("\nepoch +loss [^\n]*\n +1 [^\n]*%[^\n]*\n +2 "
                                                   "[^\n]*%[^\n]*\n +3 [^\n]*%"));
  const auto record = nlohmann::json::parse(read_text(scratch / "run/run.json"));
  EXPECT_EQ(record["epochs"].size(), 3U);
  ASSERT_EQ(record["commands"].size(), 2U);
  EXPECT_THAT(record["commands"][0]["command"].get<std::string>(),
              ::testing::EndsWith(" --max-epochs 1"));
  EXPECT_EQ(record["commands"][0]["last_epoch"], 1);
  EXPECT_THAT(record["commands"][1]["command"].get<std::string>(),
              ::testing::EndsWith(" --max-epochs 3 --resume"));
  EXPECT_EQ(record["commands"][1]["first_epoch"], 2);
  EXPECT_EQ(record["commands"][1]["last_epoch"], 3);
  EXPECT_EQ(record["provenance"]["model"], "MnistNet");
  EXPECT_EQ(record["provenance"]["image_size"], "28x28");
  EXPECT_EQ(record["provenance"]["split"], "the data set's own split, 64 training images");
  EXPECT_THAT(record["provenance"]["augmentation"].get<std::string>(),
              HasSubstr("Normalize(mean "));

  auto sharded = common;
  sharded.insert(sharded.end(), {"--max-epochs", "4", "--resume", "--strategy", "zero1"});
  result = train(sharded);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(read_text(scratch / "r.json"))["strategy"], "zero1");

  auto without_momentum = second;
  without_momentum.insert(without_momentum.end(), {"--momentum", "0"});
  without_momentum[without_momentum.size() - 4] = "5";  // the number of epochs
  expect_one_error(train(without_momentum), 1, "whose optimizer remembers momentum_buffer",
                   "momentum");

  auto foreign = common;
  foreign[0] = "cifar10";
  foreign.insert(foreign.end(), {"--resume"});
  EXPECT_EQ(train(foreign).exit_code, 1);
}

// One command line begins a run, resumes it, and ends well once it is complete. --weights counts
// when the run begins. RECIPE is not the value of --resume.
TEST_F(TrainCommand, BeginsOrResumesWithOneCommandLine) {
  ASSERT_EQ(train({"mnist", "--max-steps", "1", "--batch-size", "8", "--out", in_scratch("first")})
                .exit_code,
            0);
  const std::string weights = in_scratch("first/checkpoint.safetensors");
  for (const std::vector<std::string>& resume :
       std::vector<std::vector<std::string>>{{"--resume", "auto"}, {"--resume=auto"}}) {
    const std::string out = in_scratch("run" + std::to_string(resume.size()));
    std::vector<std::string> words = resume;
    words.insert(words.end(),
                 {"mnist", "--nproc-per-node", "2", "--threads", "1", "--batch-size", "8", "--out",
                  out, "--weights", weights, "--json", in_scratch("r.json"), "--max-steps", "1"});
    ProgramResult result = train(words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, ::testing::Not(HasSubstr("resumes from ")));
    words.back() = "2";
    const std::string note =
        "note: the run resumes with the weights of its checkpoint; --weights " + weights +
        " is not loaded\n";
    result = train(words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, note);
    EXPECT_THAT(result.out, HasSubstr("\nresumes from " + out + "/checkpoints/step-00000001"));
    const std::string text = read_text(out + "/run.json");
    result = train(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(nlohmann::json::parse(read_text(scratch / "r.json"))["already_complete"], true);
    EXPECT_EQ(read_text(out + "/run.json"), text) << "the record stays that of the run";
    const auto record = nlohmann::json::parse(text);
    EXPECT_EQ(record["resumed_from"], out + "/checkpoints/step-00000001");
    EXPECT_EQ(record["weights"], weights) << "with which the run began";
    EXPECT_EQ(record["already_complete"], false);
    EXPECT_EQ(record["commands"].size(), 2U);
  }
  // Without auto, and with RECIPE after the flag.
  const ProgramResult last = train(
      {"--resume", "mnist", "--max-steps", "3", "--batch-size", "8", "--out", in_scratch("first")});
  EXPECT_EQ(last.exit_code, 0) << last.err;
}

// A loop that resumes until the exit code is 0 must terminate.
TEST_F(TrainCommand, ResumedWhenItIsCompleteEndsWell) {
  const std::vector<std::string> first = {"mnist",
                                          "--nproc-per-node",
                                          "2",
                                          "--threads",
                                          "1",
                                          "--batch-size",
                                          "16",
                                          "--max-epochs",
                                          "1",
                                          "--out",
                                          in_scratch("run"),
                                          "--json",
                                          in_scratch("first.json")};
  ASSERT_EQ(train(first).exit_code, 0);
  const std::string checkpoint = read_text(scratch / "run/checkpoint.safetensors");
  std::vector<std::string> again = first;
  again.back() = in_scratch("again.json");
  again.push_back("--resume");
  const ProgramResult result = train(again);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("the run is complete"));
  const auto before = nlohmann::json::parse(read_text(scratch / "first.json"));
  const auto after = nlohmann::json::parse(read_text(scratch / "again.json"));
  EXPECT_EQ(before["already_complete"], false);
  EXPECT_EQ(after["already_complete"], true);
  EXPECT_EQ(after["epochs"], nlohmann::json::array());
  EXPECT_EQ(after["validation"], before["validation"]);
  EXPECT_EQ(read_text(scratch / "run/checkpoint.safetensors"), checkpoint);
}

TEST_F(TrainCommand, OverwritesACheckpointOnlyWhenToldTo) {
  std::vector<std::string> words = {"mnist",  "--max-steps", "1",     "--batch-size",   "8",
                                    "--seed", "1",           "--out", in_scratch("run")};
  ASSERT_EQ(train(words).exit_code, 0);
  const std::string first = read_text(scratch / "run/checkpoint.safetensors");
  words[6] = "2";
  expect_one_error(train(words), 2,
                   "already holds a checkpoint; set --resume to continue that run, --overwrite to "
                   "replace it, or another --out",
                   "a second run");
  EXPECT_EQ(read_text(scratch / "run/checkpoint.safetensors"), first);
  const std::filesystem::path checkpoints = scratch / "run/checkpoints";
  std::filesystem::rename(checkpoints / "step-00000001",
                          checkpoints / ".tmp-replaced-step-00000001");
  expect_one_error(train(words), 2, "already holds a checkpoint; set --resume to continue that run",
                   "a checkpoint that a killed run has set aside");
  words.push_back("--overwrite");
  const ProgramResult result = train(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(read_text(scratch / "run/checkpoint.safetensors"), first);
}

// The checkpoints that the options request, plus the links.
TEST_F(TrainCommand, KeepsTheCheckpointsThatItsOptionsName) {
  const std::vector<std::string> words = {"mnist",
                                          "--max-epochs",
                                          "2",
                                          "--limit-train-batches",
                                          "5",
                                          "--batch-size",
                                          "8",
                                          "--out",
                                          in_scratch("run"),
                                          "--every-n-train-steps",
                                          "3",
                                          "--keep-checkpoints",
                                          "2",
                                          "--save-top-k",
                                          "loss:1",
                                          "--background-checkpoints"};
  const ProgramResult result = train(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const std::filesystem::path checkpoints = scratch / "run/checkpoints";
  // Steps 3, 5, 6, 9 and 10. Steps 5 and 10 end an epoch and are evaluated.
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints)) {
    names.insert(entry.path().filename());
  }
  const std::string best = std::filesystem::read_symlink(checkpoints / "best");
  EXPECT_TRUE(best == "step-00000005" || best == "step-00000010") << best;
  EXPECT_EQ(names,
            (std::set<std::string>{"best", "latest", "step-00000009", "step-00000010", best}));
  EXPECT_EQ(std::filesystem::read_symlink(checkpoints / "latest"), "step-00000010");
  const auto manifest = nlohmann::json::parse(read_text(checkpoints / "latest" / "manifest.json"));
  EXPECT_EQ(manifest["step"], 10);
  EXPECT_TRUE(manifest["metrics"].contains("accuracy"));
  const std::string weights = (checkpoints / best / "model.safetensors").string();
  EXPECT_THAT(result.out, HasSubstr("\nbest validation loss "));
  EXPECT_THAT(result.out, HasSubstr(", weights in " + weights + "\nvalidation accuracy "));
  const auto record = nlohmann::json::parse(read_text(scratch / "run/run.json"));
  EXPECT_EQ(record["best"]["metric"], "loss");
  EXPECT_EQ(record["best"]["epoch"], best == "step-00000005" ? 1 : 2);
  EXPECT_EQ(record["best"]["weights"], weights);
  EXPECT_LE(record["best"]["value"], record["validation"]["loss"]);
}

TEST_F(TrainCommand, LeavesTheFolderOfALivingRunAlone) {
  const std::vector<std::string> living = {
      "mnist",        "--nproc-per-node", "2",     "--batch-size",   "4",
      "--max-epochs", "1000000",          "--out", in_scratch("run")};
  ProgramRun run(command(living), {{"LOCKSTEP_DATA", data.path().string()}});
  while (!std::filesystem::exists(scratch / "run" / "checkpoint.safetensors")) {
    ASSERT_EQ(waitid(P_PID, run.pid(), nullptr, WEXITED | WNOHANG | WNOWAIT), 0);
    usleep(1000);
  }
  const std::vector<pid_t> children = children_of(run.pid());
  ASSERT_EQ(children.size(), 3U);  // two ranks, and the process that merges their output
  const std::string holder = str("run is in use by process ", run.pid(), " on ");
  for (const char* how : {"--resume", "--overwrite"}) {
    std::vector<std::string> second = {"mnist", "--max-steps",     "1",
                                       "--out", in_scratch("run"), how};
    // run_to_end() would end other running processes.
    ProgramRun refused(command(second), {{"LOCKSTEP_DATA", data.path().string()}});
    siginfo_t ended{};
    waitid(P_PID, refused.pid(), &ended, WEXITED | WNOWAIT);
    EXPECT_EQ(ended.si_status, 2) << how;
    EXPECT_THAT(refused.error_so_far(), HasSubstr(holder)) << how;
    waitpid(refused.pid(), nullptr, 0);
  }
  // The ranks of a killed launcher hold the folder as long as they live. They become children of
  // this process.
  kill(run.pid(), SIGKILL);
  EXPECT_EQ(run.wait().exit_code, 128 + SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  const ProgramResult next =
      train({"mnist", "--max-steps", "1", "--out", in_scratch("run"), "--overwrite"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
}

}  // namespace
}  // namespace lockstep::testing_support
