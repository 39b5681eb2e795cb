// How a rank's failure reaches its launcher, and the words for it.
#include <lockstep/launch/failure_report.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/launch/launcher.h>
#include <tests/support/messages.h>
#include <tests/support/ranks.h>
#include <tests/support/scoped_environment.h>

namespace lockstep::launch {
namespace {

template <class Exception>
FailureReport report_of(const Exception& error) {
  return describe_failure(std::make_exception_ptr(error));
}

TEST(FailureReport, TellsTheKindsOfErrorsApart) {
  const Clock::time_point before = Clock::now();
  const FailureReport config = report_of(ConfigError("no such recipe"));
  EXPECT_EQ(config.exit_code, 2);
  EXPECT_FALSE(config.communication);
  EXPECT_EQ(config.text, "no such recipe");
  EXPECT_GE(config.when, before);
  EXPECT_LE(config.when, Clock::now());
  const FailureReport data = report_of(DataError("first\nsecond"));
  EXPECT_EQ(data.exit_code, 1);
  EXPECT_FALSE(data.communication);
  EXPECT_EQ(data.text, "first\nsecond");
  EXPECT_TRUE(report_of(CommError("lost rank 1")).communication);
  EXPECT_TRUE(report_of(TimeoutError("late")).communication);
  EXPECT_EQ(data.interrupted_by, 0);
  const FailureReport interrupted = report_of(Interrupted(SIGTERM));
  EXPECT_EQ(interrupted.interrupted_by, SIGTERM);
  EXPECT_EQ(interrupted.exit_code, 128 + SIGTERM);
  EXPECT_EQ(interrupted.text, "interrupted by signal 15 (Terminated)");
  // A text for people precedes one that is for programmers.
  EXPECT_EQ(report_of(std::bad_alloc()).text,
            std::string("out of memory\n") + std::bad_alloc().what());
  const FailureReport number = report_of(7);
  EXPECT_EQ(number.text, "an exception that is not a std::exception");
  EXPECT_EQ(number.exit_code, 1);
}

class ReportPipe {
 public:
  ReportPipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~ReportPipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }

 private:
  int ends_[2] = {-1, -1};
};

TEST(FailureReport, ArrivesAsItWasSent) {
  for (const bool communication : {false, true}) {
    const ReportPipe pipe;
    FailureReport sent;
    sent.when = Clock::now();
    sent.exit_code = 42;
    sent.communication = communication;
    sent.interrupted_by = communication ? 0 : SIGINT;
    sent.text = std::string("a\0b\n", 4);
    send_report(pipe.writer(), sent);
    const std::optional<FailureReport> received = receive_report(pipe.reader());
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(received->when, sent.when);
    EXPECT_EQ(received->exit_code, 42);
    EXPECT_EQ(received->communication, communication);
    EXPECT_EQ(received->interrupted_by, sent.interrupted_by);
    EXPECT_EQ(received->text, sent.text);
  }
}

TEST(FailureReport, IsCutWhereItExceedsAPipe) {
  const ReportPipe pipe;
  FailureReport sent;
  sent.text = std::string(100'000, 'x') + "end";
  send_report(pipe.writer(), sent);
  const std::optional<FailureReport> received = receive_report(pipe.reader());
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->text, std::string(32 * 1024, 'x'));
}

TEST(FailureReport, OfARankThatSentNoneOrDiedMeanwhileIsNone) {
  const ReportPipe silent;
  EXPECT_FALSE(receive_report(silent.reader()).has_value());
  const ReportPipe cut;
  ASSERT_EQ(write(cut.writer(), "12345678", 8), 8);
  EXPECT_FALSE(receive_report(cut.reader()).has_value());
}

TEST(FailureOfARank, SaysWhatItsSignalMeans) {
  const std::pair<int, const char*> cases[] = {
      {SIGBUS, ": memory or a mapped file vanished; is a file system full?"},
      {SIGABRT,
       ": an uncaught exception (its message is above, after what()) or a failed assertion"},
      {SIGKILL, ": if nobody did that, memory ran out; the kernel's log (dmesg) tells"},
      {SIGSEGV, ": a crash; run that rank under a debugger, or start a single one"},
      {SIGFPE, ": a crash; run that rank under a debugger, or start a single one"},
      {SIGILL, ": a crash; run that rank under a debugger, or start a single one"},
      {SIGUSR1, ""}};
  for (const auto& [number, hint] : cases) {
    const LaunchResult result = launch_ranks({}, [number = number] {
      const rlimit no_core{0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      std::signal(number, SIG_DFL);
      std::raise(number);
    });
    EXPECT_EQ(result.message,
              str("rank 0 was killed by signal ", number, " (", strsignal(number), ")", hint));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.failed_rank, 0);
    EXPECT_EQ(result.details, "");
  }
}

// The second rank of the third host, where each host has two.
TEST(FailureOfARank, IsNamedByItsNumberInTheWholeJob) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_SECRET", std::nullopt);
  struct Case {
    std::function<void()> fail;
    int exit_code;
    const char* message;
  };
  const Case cases[] = {{[] { throw DataError("broken"); }, 1, "rank 5: broken"},
                        {[] { throw DataError("rank 1: no file"); }, 1, "rank 5: rank 1: no file"},
                        {[] { throw ConfigError("rank 5: no recipe"); }, 2, "rank 5: no recipe"},
                        {[] { std::raise(SIGKILL); }, 1, "rank 5 was killed by signal 9 (Killed)"},
                        {[] { _exit(3); }, 1, "rank 5 ended with exit code 3"}};
  const LaunchOptions on_third = {
      .nproc_per_node = 2, .master_port = 29511, .nnodes = 3, .node_rank = 2};
  for (const Case& c : cases) {
    const LaunchResult result = launch_ranks(on_third, [&c] {
      if (environment_string("LOCAL_RANK") == "1") c.fail();
      while (true) pause();
    });
    EXPECT_THAT(result.message, ::testing::StartsWith(c.message));
    EXPECT_EQ(result.exit_code, c.exit_code) << c.message;
    EXPECT_EQ(result.failed_rank, 5) << c.message;
    EXPECT_EQ(result.interrupted_by, 0) << c.message;
  }
}

TEST(LaunchOptions, AreRefusedByTheirNames) {
  const auto refusal = [](const LaunchOptions& options) {
    return testing_support::message_of<ConfigError>([&] { launch_ranks(options, [] {}); });
  };
  const std::pair<LaunchOptions, const char*> cases[] = {
      {{.nproc_per_node = 0}, "launch: nproc_per_node must be from 1 to 1024, got 0"},
      {{.nproc_per_node = 1025}, "launch: nproc_per_node must be from 1 to 1024, got 1025"},
      {{.grace = Milliseconds(-1)}, "launch: grace must be at least 0, got -1"},
      {{.interrupt_grace = Milliseconds(-1)}, "launch: interrupt_grace must be at least 0, got -1"},
      {{.master_port = 1, .nnodes = 65537}, "launch: nnodes must be from 1 to 65536, got 65537"},
      {{.nnodes = 0}, "launch: nnodes must be from 1 to 65536, got 0"},
      {{.node_rank = 1}, "launch: node_rank must be from 0 to 0, got 1"},
      {{.master_port = 1, .nnodes = 2, .node_rank = -1},
       "launch: node_rank must be from 0 to 1, got -1"},
      {{.master_port = 1, .nnodes = 2, .node_rank = 2},
       "launch: node_rank must be from 0 to 1, got 2"},
      {{.nnodes = 2}, "launch: master_port must be from 1 to 65535, got 0"},
      {{.join_timeout = Milliseconds(-1)}, "launch: join_timeout must be at least 0, got -1"},
      {{.ranks_exec = true, .join_timeout = Milliseconds(1)},
       "launch: join_timeout must be 0 with ranks_exec: another program cannot tell that it has "
       "joined"}};
  for (const auto& [options, message] : cases) EXPECT_EQ(refusal(options), message);
  EXPECT_EQ(refusal({.grace = Milliseconds(0),
                     .interrupt_grace = Milliseconds(0),
                     .join_timeout = Milliseconds(0)}),
            "nothing was thrown");
}

TEST(LauncherOfSeveralHosts, SaysWhatItsMeetingPointLacks) {
  testing_support::ScopedEnvironment environment;
  environment.set("LOCKSTEP_SECRET", std::nullopt);
  const auto refusal = [](const LaunchOptions& options) {
    return testing_support::message_of<ConfigError>([&] { launch_ranks(options, [] {}); });
  };
  EXPECT_THAT(
      refusal({.master_port = 29511, .nnodes = 2, .master_addr = "no such host."}),
      ::testing::AllOf(::testing::StartsWith("launch: cannot resolve the host 'no such host.'"),
                       ::testing::EndsWith("; give master_addr a name that this host knows, or an "
                                           "address")));
  EXPECT_THAT(refusal({.master_port = 29511, .nnodes = 2, .master_addr = "192.0.2.1"}),
              ::testing::HasSubstr("whoever reaches the meeting point 192.0.2.1:29511 could join "
                                   "this job; start it on all hosts with the same "
                                   "LOCKSTEP_SECRET"));
  EXPECT_EQ(refusal({.master_addr = "192.0.2.1", .ranks_exec = true}),
            "the ranks cannot meet at 192.0.2.1:0: Cannot assign requested address; give "
            "master_addr an address of this host");
}

std::string refused_meeting_point(const LaunchOptions& options) {
  return testing_support::message_of<ConfigError>([&] { launch_ranks(options, [] {}); });
}

// Another address of this host need not help. Without the name of an interface, the kernel refuses
// a link-local address.
TEST(LauncherOfOtherPrograms, GivesNoAdviceOnAnAddressThatItDoesNotUnderstand) {
  EXPECT_THAT(refused_meeting_point({.master_addr = "fe80::1", .ranks_exec = true}),
              ::testing::AnyOf("the ranks cannot meet at [fe80::1]:0: Invalid argument",
                               "the ranks cannot meet at [fe80::1]:0: Address family not supported "
                               "by protocol"));
}

TEST(LauncherOfOtherPrograms, GivesNoAdviceOnAPortThatItMayNotUse) {
  int first_open_port = 1024;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_open_port;
  if (first_open_port <= 1) GTEST_SKIP() << "every user may use every port here";
  const auto errors = testing_support::run_processes(1, [](int) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
      throw Error("cannot become nobody");
    }
    throw Error(refused_meeting_point({.master_port = 1, .ranks_exec = true}));
  });
  EXPECT_THAT(errors[0], ::testing::AllOf(::testing::StartsWith("the ranks cannot meet at "),
                                          ::testing::EndsWith(":1: Permission denied")));
}

}  // namespace
}  // namespace lockstep::launch
