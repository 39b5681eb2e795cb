// Lists the descendants of this process while some of them start and end.
#include <lockstep/launch/process_tree.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/launch/launcher.h>
#include <tests/launch/channel.h>

namespace lockstep::launch {
namespace {

using testing::Contains;
using testing::Not;

TEST(ProcessTree, HasChildrenThatRun) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(pipe_ends[1]);
    char byte;
    static_cast<void>(!read(pipe_ends[0], &byte, 1));  // until the parent closes its end
    _exit(0);
  }
  EXPECT_THAT(running_descendants(), Contains(child));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  waitpid(child, nullptr, 0);
  EXPECT_THAT(running_descendants(), Not(Contains(child)));
}

// A process may end between the opening and the reading of its file in /proc.
TEST(ProcessTree, CanBeReadWhileProcessesEnd) {
  const pid_t breeder = fork();
  if (breeder == 0) {
    for (const Deadline deadline(std::chrono::milliseconds(800)); !deadline.expired();) {
      for (int i = 0; i < 100; ++i) {
        if (fork() == 0) _exit(0);
      }
      while (waitpid(-1, nullptr, 0) > 0) continue;
    }
    _exit(0);
  }
  for (const Deadline deadline(std::chrono::milliseconds(700)); !deadline.expired();) {
    ASSERT_NO_THROW(running_descendants());
  }
  waitpid(breeder, nullptr, 0);
}

// A child that waits until it is killed, at the latest at the end of this object.
class WaitingChild {
 public:
  explicit WaitingChild(const char* name = "waiting") : pid_(fork()) {
    if (pid_ == 0) {
      prctl(PR_SET_NAME, name);
      ready_.write_line("ready");
      while (true) pause();
    }
    ready_.read_line();
  }
  ~WaitingChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  WaitingChild(const WaitingChild&) = delete;
  WaitingChild& operator=(const WaitingChild&) = delete;

  pid_t pid() const { return pid_; }
  // Ends the child, which remains as a zombie.
  void kill_only() const {
    kill(pid_, SIGKILL);
    siginfo_t ended{};
    waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT);
  }

 private:
  testing_support::Channel ready_;
  pid_t pid_;
};

// The kernel writes a name as it is between the parentheses, and other fields after it.
TEST(ProcessTree, HasProcessesOfAnyName) {
  for (const char* name : {"waiting", "a b", "(", ")", ") Z 1", "a) T 1 (b", "a\n) T 1"}) {
    const WaitingChild child(name);
    EXPECT_THAT(running_descendants(), Contains(child.pid())) << name;
    EXPECT_FALSE(is_stopped(child.pid())) << name;
  }
}

TEST(ProcessTree, KnowsWhichProcessesAreStopped) {
  const WaitingChild child;
  const WaitingChild other;
  for (int time = 0; time < 2; ++time) {
    EXPECT_FALSE(is_stopped(child.pid()));
    int status = 0;
    kill(child.pid(), SIGSTOP);
    ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
    ASSERT_TRUE(WIFSTOPPED(status));
    EXPECT_TRUE(is_stopped(child.pid()));
    EXPECT_FALSE(is_stopped(other.pid()));
    EXPECT_THAT(running_descendants(), testing::IsSupersetOf({child.pid(), other.pid()}));
    kill(child.pid(), SIGCONT);
    ASSERT_EQ(waitpid(child.pid(), &status, WCONTINUED), child.pid());
    EXPECT_FALSE(is_stopped(child.pid()));
  }
  child.kill_only();
  EXPECT_FALSE(is_stopped(child.pid())) << "a zombie";
  EXPECT_THAT(running_descendants(),
              testing::AllOf(Contains(other.pid()), Not(Contains(child.pid()))));
}

// A child whose own child writes its number to `pids` and waits until it is killed.
pid_t fork_two_generations(const testing_support::Channel& pids) {
  const pid_t child = fork();
  if (child != 0) return child;
  if (fork() == 0) pids.write_line(std::to_string(getpid()));
  while (true) pause();
}

// Each case runs in a process of its own, which keeps no orphans at first.
TEST(ProcessTree, HasOrphansOnlyWhileTheyAreKept) {
  for (const bool keep : {false, true}) {
    const LaunchResult result = launch_ranks({}, [keep] {
      const OrphanKeeper keeper(keep);
      const testing_support::Channel pids;
      const pid_t child = fork_two_generations(pids);
      const auto grandchild = static_cast<pid_t>(std::stoi(pids.read_line()));
      const std::vector<pid_t> both = running_descendants();
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
      const std::vector<pid_t> left = running_descendants();
      kill(grandchild, SIGKILL);
      const bool is_ours = waitpid(grandchild, nullptr, 0) == grandchild;
      const std::vector<pid_t> kept = keep ? std::vector{grandchild} : std::vector<pid_t>();
      LOCKSTEP_CHECK((both == std::vector{child, grandchild}), both.size());
      LOCKSTEP_CHECK(left == kept, left.size());
      LOCKSTEP_CHECK(is_ours == keep);
    });
    EXPECT_EQ(result.message, "") << keep;
  }
}

// A program that kept orphans before still does so afterwards.
TEST(OrphanKeeper, RestoresWhatItFound) {
  const LaunchResult result = launch_ranks({}, [] {
    const auto keeps = [] {
      int value = -1;
      prctl(PR_GET_CHILD_SUBREAPER, &value);
      return value;
    };
    for (int time = 0; time < 2; ++time) {
      {
        const OrphanKeeper none(false);
        LOCKSTEP_CHECK(keeps() == 0);
        const OrphanKeeper outer(true);
        LOCKSTEP_CHECK(keeps() == 1);
        {
          const OrphanKeeper inner(true);
        }
        LOCKSTEP_CHECK(keeps() == 1, "the outer one still lives");
        {
          const OrphanKeeper inner(false);
        }
        LOCKSTEP_CHECK(keeps() == 1, "the outer one still lives");
      }
      LOCKSTEP_CHECK(keeps() == 0, time);
    }
  });
  EXPECT_EQ(result.message, "");
}

}  // namespace
}  // namespace lockstep::launch
