// Ranks that finish their work when a signal asks them to end.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/launch/launcher.h>
#include <lockstep/launch/signal_inbox.h>
#include <tests/launch/channel.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::launch {
namespace {

using testing_support::Channel;
using testing_support::TemporaryDirectory;

constexpr Milliseconds kLongGrace = std::chrono::minutes(5);  // longer than a test

// In a rank: tells the test of the first signal, and keeps running.
int noted_fd = -1;
volatile std::sig_atomic_t noted_signal = 0;
void note_signal(int number) {
  if (noted_signal != 0) return;
  noted_signal = number;
  if (write(noted_fd, "asked\n", 6) != 6) _exit(9);
}

// A launcher in a process of its own, which leads a process group. Its two ranks do not end when
// they are asked to.
class WorkingRanks {
 public:
  using Finish = std::function<void(const WorkingRanks&)>;
  // `finish` is what a rank does once it has been asked to end and may_finish() was called.
  WorkingRanks(Milliseconds interrupt_grace, const Finish& finish) {
    launcher_ = fork();
    if (launcher_ != 0) {
      setpgid(launcher_, launcher_);  // in case the child has not called it yet
      for (int rank = 0; rank < 2; ++rank) from_ranks.read_line();
      return;
    }
    setpgid(0, 0);
    for (const int number : {SIGINT, SIGTERM}) signal(number, SIG_DFL);
    const LaunchOptions options{.nproc_per_node = 2, .interrupt_grace = interrupt_grace};
    const LaunchResult result = launch_ranks(options, [&] {
      noted_fd = from_ranks.writer();
      for (const int number : {SIGINT, SIGTERM}) signal(number, note_signal);
      from_ranks.write_line("ready");
      while (noted_signal == 0 || !std::filesystem::exists(folder_ / "go")) usleep(1000);
      finish(*this);
    });
    outcome_.write_line(str(result.exit_code, " ", result.interrupted_by, " ", result.message));
    _exit(0);
  }
  ~WorkingRanks() {
    kill(launcher_, SIGKILL);
    waitpid(launcher_, nullptr, 0);
  }
  WorkingRanks(const WorkingRanks&) = delete;
  WorkingRanks& operator=(const WorkingRanks&) = delete;

  pid_t launcher() const { return launcher_; }
  void wait_until_asked() const {
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(from_ranks.read_line(), "asked");
  }
  void may_finish() const { folder_.write("go", ""); }
  std::string outcome() const { return outcome_.read_line(); }

  Channel from_ranks;

 private:
  TemporaryDirectory folder_;
  Channel outcome_;
  pid_t launcher_ = -1;
};

int local_rank_here() { return static_cast<int>(environment_integer("LOCAL_RANK").value_or(-1)); }

// A batch system signals the launcher, its group, or both.
TEST(Interruption, LetsRanksFinishWhicheverProcessesGetTheSignal) {
  struct Way {
    const char* name;
    bool launcher_first;
    bool group;
    bool launcher_last;
  };
  const Way ways[] = {{"launcher", true, false, false},
                      {"group", false, true, false},
                      {"launcher, then group", true, true, false},
                      {"group, then launcher", false, true, true}};
  for (const int number : {SIGINT, SIGTERM}) {
    for (const Way& way : ways) {
      SCOPED_TRACE(str("signal ", number, " to ", way.name));
      const WorkingRanks ranks(kLongGrace, [](const WorkingRanks& own) {
        own.from_ranks.write_line("done");
        throw Interrupted(noted_signal);
      });
      if (way.launcher_first) kill(ranks.launcher(), number);
      if (way.launcher_first && way.group) usleep(5000);
      if (way.group) kill(-ranks.launcher(), number);
      if (way.launcher_last) {
        usleep(5000);
        kill(ranks.launcher(), number);
      }
      ranks.wait_until_asked();
      ranks.may_finish();
      for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.from_ranks.read_line(), "done");
      EXPECT_EQ(ranks.outcome(),
                str(128 + number, " ", number, " interrupted by ", signal_text(number)));
    }
  }
}

TEST(Interruption, EndsRanksAtOnceAtASecondRequest) {
  const WorkingRanks ranks(kLongGrace, [](const WorkingRanks&) {});
  kill(ranks.launcher(), SIGTERM);
  ranks.wait_until_asked();
  // The launcher has received the first signal by now.
  std::this_thread::sleep_for(kOneRequest + Milliseconds(50));
  kill(ranks.launcher(), SIGINT);
  EXPECT_EQ(ranks.outcome(), "143 15 interrupted by signal 15 (Terminated)");
}

TEST(Interruption, KillsRanksThatTakeTooLong) {
  const WorkingRanks ranks(Milliseconds(250), [](const WorkingRanks&) {});
  kill(ranks.launcher(), SIGTERM);
  ranks.wait_until_asked();
  EXPECT_EQ(ranks.outcome(),
            "143 15 interrupted by signal 15 (Terminated); ranks that had not ended after 0.25 s "
            "were killed");
}

// The other ranks wait for a rank that has failed, in vain.
TEST(Interruption, EndsSoonWhenARankCannotFinish) {
  const WorkingRanks ranks(kLongGrace, [](const WorkingRanks&) {
    if (local_rank_here() == 0) throw DataError("the disk is full");
    while (true) pause();
  });
  kill(ranks.launcher(), SIGTERM);
  ranks.wait_until_asked();
  ranks.may_finish();
  EXPECT_EQ(ranks.outcome(), "1 0 rank 0: the disk is full");
}

TEST(Interruption, IsNoneOnceAllWorkIsDone) {
  const WorkingRanks ranks(kLongGrace, [](const WorkingRanks&) {});
  kill(ranks.launcher(), SIGTERM);
  ranks.wait_until_asked();
  ranks.may_finish();
  EXPECT_EQ(ranks.outcome(), "0 0 ");
}

// A rank that has finished early is no reason to hurry the others, which may still save.
TEST(Interruption, OfOneRankLeavesTheOthersAllTheirTime) {
  Channel channel;
  const LaunchResult result = launch_ranks({.nproc_per_node = 2}, [&] {
    if (local_rank_here() == 1) throw Interrupted(SIGTERM);
    // Twice the time that a launcher leaves the ranks after a failure.
    std::this_thread::sleep_for(2 * LaunchOptions{}.grace + std::chrono::seconds(1));
    channel.write_line("done");
    throw Interrupted(SIGTERM);
  });
  channel.close_writer();
  EXPECT_EQ(channel.read_line(), "done");
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(result.interrupted_by, SIGTERM);
  EXPECT_EQ(result.failed_rank, -1);
  EXPECT_EQ(result.message, "interrupted by signal 15 (Terminated)");
}

}  // namespace
}  // namespace lockstep::launch
