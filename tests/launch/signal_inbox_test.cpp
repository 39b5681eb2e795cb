// Signals that wait in a descriptor: which ones do, who sent them, and what an inbox restores.
#include <lockstep/launch/signal_inbox.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include <lockstep/core/error.h>
#include <lockstep/launch/launcher.h>
#include <tests/support/process_usage.h>

namespace lockstep::launch {
namespace {

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

// Runs `body` in a process of its own, in which no signal is ignored or handled at first. What it
// throws, and a signal that ends it, fail the test.
void with_own_signals(const std::function<void()>& body) {
  const LaunchResult result = launch_ranks({}, [&] {
    for (const int number : kEndingSignals) std::signal(number, SIG_DFL);
    std::signal(SIGCHLD, SIG_DFL);
    body();
  });
  EXPECT_EQ(result.message, "");
}

// The signal that has already arrived, as "15" or "15 from the terminal"; "none" if there is none.
std::string arrived(SignalInbox& inbox) {
  const std::optional<ReceivedSignal> signal = inbox.next(Milliseconds(0));
  if (!signal) return "none";
  return str(signal->number, signal->from_terminal ? " from the terminal" : "");
}

void require_arrival(SignalInbox& inbox, const std::string& expected, const std::string& what) {
  const std::string found = arrived(inbox);
  if (found != expected) throw Error(str(what, ": expected ", expected, ", got ", found));
}

bool is_blocked(int number) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, number) == 1;
}

// Another program may send a number with its signal. It is not a terminal.
TEST(SignalInbox, KnowsWhoSentASignal) {
  with_own_signals([] {
    SignalInbox inbox;
    require_arrival(inbox, "none", "at first");
    for (const int number : kEndingSignals) {
      kill(getpid(), number);
      require_arrival(inbox, str(number), "kill");
      for (const int value : {0, 1, -1}) {
        sigval number_sent{};
        number_sent.sival_int = value;
        sigqueue(getpid(), number, number_sent);
        require_arrival(inbox, str(number), "another program");
      }
      SignalInbox::pass_on({.number = number, .from_terminal = false}, getpid());
      require_arrival(inbox, str(number), "passed on");
      SignalInbox::pass_on({.number = number, .from_terminal = true}, getpid());
      require_arrival(inbox, str(number, " from the terminal"), "passed on");
      SignalInbox::pass_on({.number = number}, getpid());
      require_arrival(inbox, str(number), "passed on by a program that names no terminal");
      require_arrival(inbox, "none", "afterwards");
    }
  });
}

// A wait ends with the signal or with its time, and one without a limit ends with the signal.
TEST(SignalInbox, WaitsNoLongerThanItMay) {
  with_own_signals([] {
    SignalInbox inbox;
    for (const int milliseconds : {0, 1, 20}) {
      const auto start = Clock::now();
      LOCKSTEP_CHECK(!inbox.next(Milliseconds(milliseconds)), milliseconds);
      LOCKSTEP_CHECK(Clock::now() - start >= Milliseconds(milliseconds), milliseconds);
    }
    for (const int milliseconds : {-1, 0, 10'000}) {
      kill(getpid(), SIGTERM);
      const std::optional<ReceivedSignal> signal = inbox.next(Milliseconds(milliseconds));
      LOCKSTEP_CHECK(signal && signal->number == SIGTERM, milliseconds);
    }
    require_arrival(inbox, "none", "afterwards");
  });
}

TEST(SignalInbox, LeavesIgnoredSignalsIgnored) {
  for (const int ignored : kEndingSignals) {
    with_own_signals([ignored] {
      std::signal(ignored, SIG_IGN);
      SignalInbox inbox;
      for (const int number : kEndingSignals) {
        kill(getpid(), number);
        require_arrival(inbox, number == ignored ? "none" : str(number), str("signal ", number));
      }
    });
  }
}

// A second Ctrl-C must not end a program that has already noticed the first.
TEST(SignalInbox, DiscardsSignalsThatNobodyRead) {
  with_own_signals([] {
    {
      const SignalInbox inbox;
      for (const int number : kEndingSignals) kill(getpid(), number);
    }
    sigset_t pending;
    sigpending(&pending);
    for (const int number : kEndingSignals) {
      LOCKSTEP_CHECK(!is_blocked(number), number);
      LOCKSTEP_CHECK(sigismember(&pending, number) == 0, number);
    }
  });
}

void on_child(int) {}

// Signals that were blocked before stay blocked, and those that an inbox has no use for are as they
// were all the time. A second inbox finds what the first one found.
TEST(SignalInbox, RestoresWhatItChanges) {
  with_own_signals([] {
    const std::size_t before = testing_support::descriptor_count();
    std::signal(SIGCHLD, on_child);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    for (int time = 0; time < 2; ++time) {
      {
        const SignalInbox inbox;
        for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1}) {
          LOCKSTEP_CHECK(is_blocked(number), time, ' ', number);
        }
        LOCKSTEP_CHECK(!is_blocked(SIGUSR2), time);
      }
      for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2}) {
        const bool was_blocked = number == SIGHUP || number == SIGUSR1;
        LOCKSTEP_CHECK(is_blocked(number) == was_blocked, time, ' ', number);
      }
      struct sigaction of_child{};
      sigaction(SIGCHLD, nullptr, &of_child);
      LOCKSTEP_CHECK(of_child.sa_handler == on_child, time);
      LOCKSTEP_CHECK(testing_support::descriptor_count() == before, time);
    }
  });
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int open_something() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// The inbox of a program without standard input may get its descriptor. A forked child may open
// another file in its place.
TEST(SignalInbox, ClosesItsDescriptorOnce) {
  for (const bool has_input : {true, false}) {
    with_own_signals([has_input] {
      if (!has_input) close(STDIN_FILENO);
      const int lowest = open_something();
      close(lowest);
      LOCKSTEP_CHECK(has_input || lowest == STDIN_FILENO, lowest);
      {
        SignalInbox inbox;
        LOCKSTEP_CHECK(is_open(lowest), lowest);
        LOCKSTEP_CHECK(is_blocked(SIGTERM) && is_blocked(SIGCHLD), lowest);
        inbox.restore_in_child();
        LOCKSTEP_CHECK(!is_open(lowest), lowest);
        LOCKSTEP_CHECK(!is_blocked(SIGTERM) && !is_blocked(SIGCHLD), lowest);
        LOCKSTEP_CHECK(open_something() == lowest, lowest);
        inbox.restore_in_child();
        LOCKSTEP_CHECK(is_open(lowest), lowest);
      }
      LOCKSTEP_CHECK(is_open(lowest), lowest);
    });
    with_own_signals([has_input] {
      if (!has_input) close(STDIN_FILENO);
      const int lowest = open_something();
      close(lowest);
      {
        const SignalInbox inbox;
      }
      LOCKSTEP_CHECK(!is_open(lowest), lowest);
    });
  }
}

// A program that ignores SIGCHLD, as a daemon may, would lose the exit codes of its children.
TEST(SignalInbox, HearsOfChildrenThatItsProgramIgnores) {
  with_own_signals([] {
    std::signal(SIGCHLD, SIG_IGN);
    {
      SignalInbox inbox;
      const pid_t child = fork();
      if (child == 0) _exit(7);
      const std::optional<ReceivedSignal> signal = inbox.next(Milliseconds(10'000));
      LOCKSTEP_CHECK(signal && signal->number == SIGCHLD && !signal->from_terminal);
      int status = 0;
      LOCKSTEP_CHECK(waitpid(child, &status, 0) == child);
      LOCKSTEP_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, status);
    }
    struct sigaction of_child{};
    sigaction(SIGCHLD, nullptr, &of_child);
    LOCKSTEP_CHECK(of_child.sa_handler == SIG_IGN);
    const LaunchResult nested = launch_ranks({}, [] { _exit(3); });
    LOCKSTEP_CHECK(nested.message == "rank 0 ended with exit code 3", nested.message);
  });
}

}  // namespace
}  // namespace lockstep::launch
