// `lockstep train` as its users meet it, above all when something is wrong.
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tests/cli/program_run.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// A small MNIST, and nothing of the user's own in sight.
class TrainCommand : public ::testing::Test {
 protected:
  TrainCommand() {
    for (const std::string split : {"train", "t10k"}) {
      data.write(split + "-images-idx3-ubyte", idx_images(64, 28, 28));
      data.write(split + "-labels-idx1-ubyte", idx_labels(64));
    }
  }

  std::vector<std::string> command(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {LOCKSTEP_PROGRAM, "train"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }
  ProgramResult train(const std::vector<std::string>& arguments, Environment environment = {},
                      const std::function<void()>& before_exec = {}) const {
    environment.try_emplace("XDG_CACHE_HOME", (scratch / "cache").string());
    environment.try_emplace("LOCKSTEP_DATA", data.path().string());
    return run_to_end(command(arguments), environment, before_exec);
  }
  std::string in_scratch(const std::string& name) const { return (scratch / name).string(); }

  TemporaryDirectory data;
  TemporaryDirectory scratch;
};

void expect_one_error(const ProgramResult& result, int exit_code, const std::string& text,
                      const std::string& name) {
  EXPECT_EQ(result.exit_code, exit_code) << name << "\n" << result.err;
  EXPECT_EQ(result.error_lines(), 1) << name << "\n" << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << name << "\n"
                                                                       << result.err;
  EXPECT_THAT(result.err, HasSubstr(text)) << name;
  EXPECT_EQ(result.left_behind, 0) << name;
}

TEST_F(TrainCommand, SaysInOneLineWhatIsWrongWithItsOptions) {
  scratch.write("file", "not a folder");
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* text;
  };
  const Case cases[] = {
      {{"nosuch"}, 2, "there is no recipe \"nosuch\"; known are: mnist, cifar10"},
      {{}, 2, "RECIPE is required"},
      {{"mnist", "--max-epoch", "1"}, 2, "did you mean '--max-epochs'"},
      {{"mnist", "--lr", "fast"}, 2, "--lr"},
      {{"mnist", "--lr", "-1"}, 2, "--lr"},
      {{"mnist", "--lr", "nan"}, 2, "--lr"},
      {{"mnist", "--momentum", "2"}, 2, "--momentum"},
      {{"mnist", "--max-epochs", "0"}, 2, "--max-epochs must be at least 1"},
      {{"mnist", "--max-steps", "0"}, 2, "--max-steps must be at least 1"},
      {{"mnist", "--limit-test-batches", "-1"}, 2, "--limit-test-batches must be at least 0"},
      {{"mnist", "--nproc-per-node", "0"}, 2, "--nproc-per-node"},
      {{"mnist", "--nproc-per-node", "2", "--strategy", "single"}, 2, "use --strategy ddp"},
      {{"mnist", "--strategy", "magic"}, 2, "--strategy"},
      {{"mnist", "--backend", "tcp"}, 2, "--backend"},
      {{"mnist", "--accelerator", "tpu"}, 2, "--accelerator"},
      {{"mnist", "--precision", "8"}, 2, "--precision"},
      {{"mnist", "--schedule", "random"}, 2, "--schedule"},
      {{"mnist", "--loader", "dali"}, 2, "--loader"},
      {{"mnist", "--timeout", "0"}, 2, "--timeout"},
      {{"mnist", "--workers", "-1"}, 2, "--workers"},
      {{"mnist", "--batch-size", "0"}, 2, "--batch-size must be at least 1"},
      {{"mnist", "--nproc-per-node", "4", "--batch-size", "3"},
       2,
       "--batch-size 3 is smaller than the number of ranks, 4"},
      {{"mnist", "--nproc-per-node", "2", "--batch-size", "5"},
       2,
       "--batch-size 5 cannot be divided by 2 ranks; use 4 or 6"},
      {{"mnist", "--out", "/proc/nothing/here"}, 2, "cannot create the folder"},
      {{"mnist", "--out", in_scratch("file") + "/run"}, 2, "cannot create the folder"},
      {{"mnist", "--json", in_scratch("")}, 2, "it is a folder"},
      {{"mnist", "--json", "/proc/nothing/report.json"}, 2, "cannot create the folder"},
      {{"mnist", "--resume"}, 2, "--resume needs --out"},
      {{"mnist", "--resume", "--out", in_scratch("empty")}, 1, "there is no checkpoint"},
      {{"mnist", "--data", "/nowhere"}, 2, "/nowhere"},
      {{"mnist", "--data", in_scratch("")}, 1, "ubyte"},
      {{"mnist", "--nproc-per-node", "2", "--backend", "nccl", "--accelerator", "cpu"}, 2, "nccl"},
  };
  for (const Case& c : cases) {
    std::string name = "train";
    for (const auto& word : c.arguments) name += " " + word;
    expect_one_error(train(c.arguments), c.exit_code, c.text, name);
  }
}

TEST_F(TrainCommand, SaysInOneLineWhatIsWrongWithItsEnvironment) {
  struct Case {
    Environment environment;
    std::vector<std::string> arguments;
    const char* text;
  };
  const Environment one_of_two = {{"RANK", "0"},
                                  {"WORLD_SIZE", "2"},
                                  {"LOCAL_RANK", "0"},
                                  {"LOCAL_WORLD_SIZE", "2"},
                                  {"MASTER_ADDR", "127.0.0.1"},
                                  {"MASTER_PORT", "29511"}};
  const Case cases[] = {
      {one_of_two, {"mnist", "--nproc-per-node", "3"}, "--nproc-per-node 3 contradicts"},
      {{{"RANK", "5"}, {"WORLD_SIZE", "2"}}, {"mnist"}, "RANK"},
      {{{"RANK", "0"}}, {"mnist"}, "WORLD_SIZE"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "two"}}, {"mnist"}, "WORLD_SIZE"},
  };
  for (const Case& c : cases) {
    expect_one_error(train(c.arguments, c.environment), 2, c.text, c.text);
  }
}

TEST_F(TrainCommand, NamesADamagedDataFile) {
  data.write("train-images-idx3-ubyte", idx_images(64, 28, 28).substr(0, 1000));
  expect_one_error(train({"mnist", "--nproc-per-node", "2"}), 1, "train-images-idx3-ubyte",
                   "truncated");
  data.write("train-images-idx3-ubyte", idx_labels(64));
  expect_one_error(train({"mnist", "--nproc-per-node", "2"}), 1, "train-images-idx3-ubyte",
                   "mislabelled");
  // The test images are read by the ranks: the launcher tells what rank 0 met.
  data.write("train-images-idx3-ubyte", idx_images(64, 28, 28));
  data.write("t10k-labels-idx1-ubyte", idx_labels(63));
  const auto result =
      train({"mnist", "--nproc-per-node", "2", "--max-steps", "1", "--batch-size", "4"});
  expect_one_error(result, 1, "t10k-labels-idx1-ubyte", "counts differ");
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
  ProgramResult result = train(first);
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
  result = train(second);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto resumed = nlohmann::json::parse(read_text(scratch / "r.json"));
  ASSERT_EQ(resumed["epochs"].size(), 2U);
  EXPECT_EQ(resumed["epochs"][0]["epoch"], 2);

  auto foreign = common;
  foreign[0] = "cifar10";
  foreign.insert(foreign.end(), {"--resume"});
  EXPECT_EQ(train(foreign).exit_code, 1);
}

TEST_F(TrainCommand, JoinsTheRanksOfAnotherLauncher) {
  // A port that was free a moment ago.
  const std::string port = std::to_string(20000 + getpid() % 20000);
  std::vector<std::unique_ptr<ProgramRun>> ranks;
  for (const std::string rank : {"0", "1"}) {
    ranks.push_back(
        std::make_unique<ProgramRun>(command({"mnist", "--max-steps", "2", "--batch-size", "8",
                                              "--threads", "1", "--timeout", "30"}),
                                     Environment{{"RANK", rank},
                                                 {"WORLD_SIZE", "2"},
                                                 {"LOCAL_RANK", rank},
                                                 {"LOCAL_WORLD_SIZE", "2"},
                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                 {"MASTER_PORT", port},
                                                 {"LOCKSTEP_DATA", data.path().string()}}));
  }
  // Both have ended before the first is asked: what then still runs is left behind.
  siginfo_t ended{};
  for (const auto& rank : ranks) waitid(P_PID, rank->pid(), &ended, WEXITED | WNOWAIT);
  const ProgramResult zero = ranks[0]->wait();
  const ProgramResult one = ranks[1]->wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(zero.exit_code, 0) << zero.err;
  EXPECT_EQ(zero.left_behind, 0);
  EXPECT_THAT(zero.out, HasSubstr("2 processes"));
  EXPECT_EQ(one.out, "") << "only rank 0 writes";
}

TEST_F(TrainCommand, TrainsOnGeneratedDigitsWithoutDataAndNetwork) {
  // Nobody listens on port 1.
  const Environment offline = {{"LOCKSTEP_DATA", ""}, {"LOCKSTEP_MIRROR", "http://127.0.0.1:1"}};
  const ProgramResult result = train({"mnist", "--max-steps", "2"}, offline);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("training on generated digits instead"));
  EXPECT_THAT(result.out, HasSubstr("generated digits"));
  expect_one_error(train({"cifar10"}, offline), 1, "cifar", "cifar10 offline");
}

TEST_F(TrainCommand, SaysThatTheDiskIsFull) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: mounts a tiny file system";
  std::filesystem::create_directory(scratch / "disk");
  const std::string disk = in_scratch("disk");
  // The mount exists in the program's own namespace only.
  const auto mount_disk = [&] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
      _exit(99);
    }
  };
  const ProgramResult result = train(
      {"mnist", "--nproc-per-node", "2", "--batch-size", "16", "--max-epochs", "1", "--out", disk},
      {}, mount_disk);
  if (result.exit_code == 99) GTEST_SKIP() << "cannot mount a file system here";
  expect_one_error(result, 1, "No space left", "full disk");
}

TEST_F(TrainCommand, LeavesNoProcessWhenItIsKilled) {
  const auto arguments = command({"mnist", "--nproc-per-node", "2", "--batch-size", "4",
                                  "--max-epochs", "1000000", "--out", in_scratch("run")});
  for (const int signal : {SIGINT, SIGTERM}) {
    std::filesystem::remove_all(scratch / "run");
    ProgramRun run(arguments, {{"LOCKSTEP_DATA", data.path().string()}});
    // It trains once it has written a checkpoint.
    while (!std::filesystem::exists(scratch / "run" / "checkpoint.safetensors")) {
      ASSERT_EQ(waitid(P_PID, run.pid(), nullptr, WEXITED | WNOHANG | WNOWAIT), 0);
      usleep(1000);
    }
    kill(run.pid(), signal);
    const ProgramResult result = run.wait();
    EXPECT_EQ(result.exit_code, 128 + signal) << result.err;
    EXPECT_EQ(result.left_behind, 0) << "signal " << signal;
  }
}

}  // namespace
}  // namespace lockstep::testing
