// `lockstep train` that a signal or its time limit ends: it saves, says so, and continues exactly.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/clock.h>
#include <lockstep/core/strings.h>
#include <tests/cli/program_run.h>
#include <tests/cli/train_command.h>

namespace lockstep::testing_support {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainInterruption : public TrainCommand {
 protected:
  using Words = std::vector<std::string>;

  // A run that needs about a second.
  Words words_of_run(const std::string& out, const char* ranks) const {
    return command({"mnist", "--nproc-per-node", ranks, "--threads", "1", "--accelerator", "cpu",
                    "--batch-size", "4", "--max-epochs", "12", "--optimizer", "adamw", "--lr",
                    "0.001", "--out", in_scratch(out)});
  }
  // A run whose step takes many seconds: all batches of an epoch are one step.
  Words words_of_long_step(const char* ranks, const char* shutdown_timeout) const {
    if (!std::filesystem::exists(many_ / "train-images-idx3-ubyte")) {
      write_mnist(many_, "train", 40000);
      write_mnist(many_, "t10k", 16);
    }
    return command({"mnist", "--nproc-per-node", ranks, "--threads", "1", "--accelerator", "cpu",
                    "--batch-size", "2", "--accumulate-grad-batches", "100000", "--max-epochs", "5",
                    "--data", many_.path().string(), "--shutdown-timeout", shutdown_timeout,
                    "--out", in_scratch("run")});
  }
  // The program leads a process group of its own.
  ProgramRun start(const Words& words) const {
    return ProgramRun(
        words, {{"LOCKSTEP_DATA", data.path().string()}, {"XDG_CACHE_HOME", in_scratch("cache")}},
        [] { setpgid(0, 0); });
  }
  json record(const std::string& out = "run") const {
    return json::parse(read_text(scratch / (out + "/run.json")));
  }
  std::string page_of_run() const {
    const ProgramResult result = run_to_end({LOCKSTEP_PROGRAM, "report", in_scratch("run")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_text(scratch / "run/report.html");
  }

  // Waits until `is_true`, or the program has ended, which makes the test fail.
  static void wait_for(const ProgramRun& run, const std::function<bool()>& is_true) {
    while (!is_true()) {
      siginfo_t ended{};
      waitid(P_PID, static_cast<id_t>(run.pid()), &ended, WEXITED | WNOHANG | WNOWAIT);
      ASSERT_EQ(ended.si_pid, 0) << run.error_so_far();
      usleep(1000);
    }
  }
  void wait_for_checkpoint(const ProgramRun& run, const std::string& out) const {
    wait_for(run,
             [&] { return std::filesystem::exists(scratch / out / "checkpoint.safetensors"); });
  }
  void wait_for_record(const ProgramRun& run) const {
    wait_for(run, [&] { return std::filesystem::exists(scratch / "run/run.json"); });
  }
  // Resumes the run in `out`, which must end like the one in `whole`.
  void expect_to_continue_exactly(const std::string& out, const char* ranks,
                                  const std::string& whole) const {
    Words words = words_of_run(out, ranks);
    words.insert(words.end(), {"--resume", "auto"});
    ProgramRun run = start(words);
    const ProgramResult result = run.wait();
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("\nresumes from "));
    EXPECT_EQ(record(out)["state"], "complete");
    for (const char* file : {"model.safetensors", "training.safetensors"}) {
      const std::string latest = str("/checkpoints/latest/", file);
      EXPECT_TRUE(read_text(in_scratch(out) + latest) == read_text(in_scratch(whole) + latest))
          << file << " differs from that of the run that was not disturbed";
    }
  }

  TemporaryDirectory many_;
};

// What tells the processes of the run to end.
struct SignalWay {
  const char* name;
  std::function<void(pid_t launcher, int number)> send;
};

std::vector<SignalWay> signal_ways() {
  const auto to_launcher = [](pid_t launcher, int number) { kill(launcher, number); };
  const auto to_group = [](pid_t launcher, int number) { kill(-launcher, number); };
  return {{"launcher", to_launcher},
          {"group", to_group},
          {"launcher, then group",
           [=](pid_t launcher, int number) {
             to_launcher(launcher, number);
             usleep(5000);
             to_group(launcher, number);
           }},
          {"group, then launcher", [=](pid_t launcher, int number) {
             to_group(launcher, number);
             usleep(5000);
             to_launcher(launcher, number);
           }}};
}

std::string name_of_signal(int number) {
  return number == SIGINT ? "signal 2 (Interrupt)" : "signal 15 (Terminated)";
}

TEST_F(TrainInterruption, SavesAndContinuesExactlyOnTwoRanks) {
  ProgramRun undisturbed = start(words_of_run("whole", "2"));
  ASSERT_EQ(undisturbed.wait().exit_code, 0);
  for (const int number : {SIGINT, SIGTERM}) {
    for (const SignalWay& way : signal_ways()) {
      SCOPED_TRACE(str("signal ", number, " to ", way.name));
      std::filesystem::remove_all(scratch / "run");
      ProgramRun run = start(words_of_run("run", "2"));
      setpgid(run.pid(), run.pid());  // in case the child has not called it yet
      wait_for_checkpoint(run, "run");
      way.send(run.pid(), number);
      const ProgramResult result = run.wait();
      EXPECT_EQ(result.exit_code, 128 + number) << result.err;
      EXPECT_EQ(result.left_behind, 0);
      EXPECT_EQ(result.error_lines(), 1) << result.err;
      EXPECT_THAT(result.err, EndsWith("error: interrupted by " + name_of_signal(number) + "\n"));
      EXPECT_THAT(result.err, HasSubstr("\nnote: the run is saved in " + in_scratch("run") +
                                        "/checkpoints/step-"));
      EXPECT_THAT(result.err,
                  HasSubstr("\nnote: to continue it: " LOCKSTEP_PROGRAM " train mnist "));
      EXPECT_THAT(result.err, HasSubstr(" --resume auto\n"));
      EXPECT_THAT(result.out,
                  HasSubstr("the run ended early: interrupted by " + name_of_signal(number)));
      const json interrupted = record();
      EXPECT_EQ(interrupted["state"], "interrupted");
      EXPECT_TRUE(std::filesystem::exists(interrupted["saved_in"].get<std::string>()));
      expect_to_continue_exactly("run", "2", "whole");
    }
  }
}

TEST_F(TrainInterruption, SavesAndContinuesExactlyInOneProcess) {
  ProgramRun undisturbed = start(words_of_run("whole", "1"));
  ASSERT_EQ(undisturbed.wait().exit_code, 0);
  for (const int number : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(number);
    std::filesystem::remove_all(scratch / "run");
    ProgramRun run = start(words_of_run("run", "1"));
    wait_for_checkpoint(run, "run");
    kill(run.pid(), number);
    usleep(5000);
    kill(run.pid(), number);  // may belong to the same request
    const ProgramResult result = run.wait();
    EXPECT_EQ(result.exit_code, 128 + number) << result.err;
    EXPECT_EQ(result.error_lines(), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("\nnote: the run is saved in "));
    EXPECT_THAT(result.err, EndsWith("error: interrupted by " + name_of_signal(number) + "\n"));
    EXPECT_EQ(record()["state"], "interrupted");
    expect_to_continue_exactly("run", "1", "whole");
  }
}

// Another launcher shows what each rank prints, and may kill the others when one has ended.
TEST_F(TrainInterruption, IsToldOnceByTheRanksOfAnotherLauncher) {
  const std::string port = std::to_string(20000 + getpid() % 20000);
  std::vector<std::unique_ptr<ProgramRun>> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.push_back(std::make_unique<ProgramRun>(
        words_of_run("run", "2"), Environment{{"RANK", rank},
                                              {"WORLD_SIZE", "2"},
                                              {"LOCAL_RANK", rank},
                                              {"LOCAL_WORLD_SIZE", "2"},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", port},
                                              {"LOCKSTEP_DATA", data.path().string()},
                                              {"XDG_CACHE_HOME", in_scratch("cache")}}));
  }
  wait_for_checkpoint(*ranks[0], "run");
  for (const auto& rank : ranks) kill(rank->pid(), SIGTERM);
  // Both must have ended before the first is asked, which counts other processes as left behind.
  siginfo_t ended{};
  for (const auto& rank : ranks) waitid(P_PID, rank->pid(), &ended, WEXITED | WNOWAIT);
  const ProgramResult zero = ranks[0]->wait();
  const ProgramResult one = ranks[1]->wait();
  EXPECT_EQ(zero.exit_code, 128 + SIGTERM) << zero.err;
  EXPECT_EQ(one.exit_code, 128 + SIGTERM) << one.err;
  EXPECT_THAT(zero.err, HasSubstr("\nnote: the run is saved in "));
  EXPECT_THAT(zero.err, EndsWith("error: interrupted by signal 15 (Terminated)\n"));
  EXPECT_EQ(zero.error_lines(), 1) << zero.err;
  EXPECT_EQ(one.error_lines(), 0) << one.err;
  EXPECT_THAT(one.err, Not(HasSubstr("note: ")));
  EXPECT_EQ(record()["state"], "interrupted");
}

// Whether a logger has made the folder of its run in `logs`.
bool has_folder(const std::filesystem::path& logs) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(logs, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->is_directory(error)) return true;
  }
  return false;
}

// A run without --out has nothing to save.
TEST_F(TrainInterruption, EndsWithOneLineIfItKeepsNothing) {
  for (const char* ranks : {"1", "2"}) {
    for (const int number : {SIGINT, SIGTERM}) {
      SCOPED_TRACE(str(ranks, " ranks, signal ", number));
      std::filesystem::remove_all(scratch / "logs");
      ProgramRun run =
          start(command({"mnist", "--nproc-per-node", ranks, "--batch-size", "4", "--max-epochs",
                         "1000000", "--logger", "csv", "--log-dir", in_scratch("logs")}));
      wait_for(run, [&] { return has_folder(scratch / "logs"); });
      kill(run.pid(), number);
      const ProgramResult result = run.wait();
      EXPECT_EQ(result.exit_code, 128 + number);
      EXPECT_THAT(result.err, EndsWith("error: interrupted by " + name_of_signal(number) + "\n"));
      EXPECT_EQ(result.lines_beside_notes(), 1) << result.err;
      EXPECT_EQ(result.left_behind, 0);
    }
  }
}

TEST_F(TrainInterruption, EndsAtASecondSignalWithoutSaving) {
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(str(ranks, " ranks"));
    std::filesystem::remove_all(scratch / "run");
    ProgramRun run = start(words_of_long_step(ranks, "300"));
    wait_for_record(run);
    EXPECT_EQ(record()["state"], "running");
    kill(run.pid(), SIGTERM);
    wait_for(run, [&] { return run.error_so_far().find("interrupted by") != std::string::npos; });
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    const Clock::time_point begin = Clock::now();
    kill(run.pid(), SIGTERM);
    const ProgramResult result = run.wait();
    EXPECT_LT(seconds_since(begin), 3);
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_EQ(result.left_behind, 0);
    EXPECT_THAT(result.err, HasSubstr("a second signal ends it without saving\n"));
    EXPECT_THAT(result.err, EndsWith("error: interrupted by signal 15 (Terminated)\n"));
    EXPECT_THAT(result.err, Not(HasSubstr("the run is saved in")));
    // No process was left to change the record of the single process, but the lock tells.
    const std::string page = page_of_run();
    EXPECT_THAT(page, HasSubstr("interrupted: "));
    EXPECT_THAT(page, Not(HasSubstr("class=\"running\"")));
    if (std::string(ranks) == "2") {
      EXPECT_EQ(record()["state"], "interrupted");
    }
  }
}

TEST_F(TrainInterruption, IsKilledIfItsStepTakesTooLong) {
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(str(ranks, " ranks"));
    std::filesystem::remove_all(scratch / "run");
    ProgramRun run = start(words_of_long_step(ranks, "1"));
    wait_for_record(run);
    kill(run.pid(), SIGTERM);
    const ProgramResult result = run.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
    EXPECT_EQ(result.left_behind, 0);
    EXPECT_EQ(result.error_lines(), 1) << result.err;
    const char* const what = std::string(ranks) == "1"
                                 ? "the run did not save within 1 s; resume from an earlier "
                                   "checkpoint\n"
                                 : "ranks that had not ended after 1 s were killed\n";
    EXPECT_THAT(result.err, EndsWith(str("error: interrupted by signal 15 (Terminated); ", what)));
    if (std::string(ranks) == "2") {
      EXPECT_EQ(record()["state"], "interrupted");
    }
  }
}

// Nobody but the launcher is left to say what has happened.
TEST_F(TrainInterruption, IsNoReasonToSayThatDeadRanksAreRunning) {
  ProgramRun run = start(words_of_run("run", "2"));
  wait_for_checkpoint(run, "run");
  for (const pid_t rank : children_of(run.pid())) kill(rank, SIGKILL);
  EXPECT_EQ(run.wait().exit_code, 1);
  EXPECT_EQ(record()["state"], "failed");
}

TEST_F(TrainInterruption, ByTheTimeLimitSavesAndEndsWell) {
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(str(ranks, " ranks"));
    std::filesystem::remove_all(scratch / "run");
    Words words = command({"mnist", "--nproc-per-node", ranks, "--batch-size", "4", "--max-epochs",
                           "100000", "--max-time", "1", "--out", in_scratch("run")});
    ProgramRun run = start(words);
    const ProgramResult result = run.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("note: the run is saved in "));
    EXPECT_THAT(result.err, HasSubstr(" --resume auto\n"));
    EXPECT_EQ(result.error_lines(), 0);
    EXPECT_EQ(record()["state"], "interrupted");
    EXPECT_EQ(record()["stop_reason"], "the time limit of 1 s has passed");
  }
}

}  // namespace
}  // namespace lockstep::testing_support
