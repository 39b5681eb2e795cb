#include <lockstep/launch/launcher.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include <lockstep/comm/rendezvous/worker_environment.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/core/environment.h>
#include <lockstep/core/error.h>
#include <lockstep/launch/signal_inbox.h>
#include <tests/launch/channel.h>
#include <tests/support/messages.h>
#include <tests/support/process_usage.h>
#include <tests/support/scoped_environment.h>

namespace lockstep::launch {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_support::Channel;
using testing_support::descriptor_count;

int my_rank() { return worker_environment()->rank; }

[[noreturn]] void hang() {
  while (true) pause();
}

// Variables of a launcher around this one must not reach the ranks, and stay as they are here.
TEST(Launcher, GivesEachRankTorchrunsEnvironment) {
  const char* const names[] = {"RANK",
                               "LOCAL_RANK",
                               "ROLE_RANK",
                               "GROUP_RANK",
                               "WORLD_SIZE",
                               "LOCAL_WORLD_SIZE",
                               "ROLE_WORLD_SIZE",
                               "GROUP_WORLD_SIZE",
                               "ROLE_NAME",
                               "MASTER_ADDR",
                               "TORCHELASTIC_RUN_ID",
                               "TORCHELASTIC_RESTART_COUNT",
                               "TORCHELASTIC_MAX_RESTARTS",
                               "TORCHELASTIC_USE_AGENT_STORE",
                               "TORCHELASTIC_ERROR_FILE"};
  testing_support::ScopedEnvironment environment;
  for (const char* name : names) environment.set(name, "9");
  for (const char* name : {"MASTER_PORT", "LOCKSTEP_LISTEN_FD"}) environment.set(name, "9");
  Channel channel;
  const LaunchResult result = launch_ranks({.nproc_per_node = 3}, [&] {
    std::string line;
    for (const char* name : names) line += environment_string(name).value_or("unset") + " ";
    const auto worker = worker_environment();
    line += worker->source + (worker->listen_fd ? " listens" : "");
    if (worker->master_port == 9) line += " at the port of the outer launcher";
    channel.write_line(line);
  });
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.message, "");
  for (const char* name : names) EXPECT_EQ(environment_string(name), "9") << name;
  EXPECT_EQ(environment_string("LOCKSTEP_LISTEN_FD"), "9");
  const std::vector<std::string> lines{channel.read_line(), channel.read_line(),
                                       channel.read_line()};
  const std::string job =
      str(" 0 3 3 3 1 default 127.0.0.1 lockstep-", getpid(), " 0 0 unset unset lockstep");
  EXPECT_THAT(lines, testing::UnorderedElementsAre("0 0 0" + job + " listens", "1 1 1" + job,
                                                   "2 2 2" + job));
}

// On loopback no other user's host can join, so such a job needs no secret.
TEST(Launcher, GivesRanksOfSeveralHostsTheirPlacesInTheJob) {
  unsetenv("LOCKSTEP_SECRET");
  Channel channel;
  const LaunchOptions options = {
      .nproc_per_node = 2, .master_port = 29511, .nnodes = 3, .node_rank = 1};
  const LaunchResult result = launch_ranks(options, [&] {
    std::string line;
    for (const char* name :
         {"RANK", "ROLE_RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "ROLE_WORLD_SIZE",
          "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "TORCHELASTIC_RUN_ID", "LOCKSTEP_LISTEN_FD", "LOCKSTEP_SECRET"}) {
      line += environment_string(name).value_or("unset") + " ";
    }
    channel.write_line(line);
  });
  EXPECT_EQ(result.message, "");
  const std::vector<std::string> lines{channel.read_line(), channel.read_line()};
  const std::string job = "127.0.0.1 29511 lockstep-127.0.0.1-29511 unset unset ";
  EXPECT_THAT(lines,
              testing::UnorderedElementsAre("2 2 0 1 6 6 2 3 " + job, "3 3 1 1 6 6 2 3 " + job));
}

// The values of LOCKSTEP_SECRET that the ranks of one launch see, one after another.
std::vector<std::string> secrets_of_a_launch(int ranks) {
  Channel channel;
  const LaunchResult result = launch_ranks({.nproc_per_node = ranks}, [&] {
    channel.write_line(environment_string("LOCKSTEP_SECRET").value_or("none"));
  });
  EXPECT_EQ(result.message, "");
  std::vector<std::string> secrets;
  for (int rank = 0; rank < ranks; ++rank) secrets.push_back(channel.read_line());
  return secrets;
}

TEST(Launcher, GivesEachJobASecretOfItsOwn) {
  unsetenv("LOCKSTEP_SECRET");
  const auto first = secrets_of_a_launch(2);
  const auto second = secrets_of_a_launch(2);
  for (const auto& secrets : {first, second}) {
    EXPECT_EQ(secrets[0], secrets[1]);
    EXPECT_THAT(secrets[0], testing::MatchesRegex("[0-9a-f]+"));
    EXPECT_EQ(secrets[0].size(), 64U);
  }
  EXPECT_NE(first[0], second[0]);
  EXPECT_EQ(environment_string("LOCKSTEP_SECRET"), std::nullopt) << "the launcher's own";
}

TEST(Launcher, KeepsTheSecretOfTheUser) {
  setenv("LOCKSTEP_SECRET", "the user's own, of some length", 1);
  const auto secrets = secrets_of_a_launch(2);
  unsetenv("LOCKSTEP_SECRET");
  EXPECT_THAT(secrets, testing::Each(std::string("the user's own, of some length")));
}

TEST(Launcher, LetsRanksMeetAtTheInheritedSocket) {
  const LaunchResult result = launch_ranks({.nproc_per_node = 2}, [] {
    const auto worker = worker_environment();
    if (worker->rank == 0) {
      const int peer = accept(*worker->listen_fd, nullptr, nullptr);
      char byte = 0;
      if (read(peer, &byte, 1) != 1 || byte != 'x') throw Error("no greeting");
      return;
    }
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(worker->master_port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        write(fd, "x", 1) != 1) {
      throw Error("no connection");
    }
  });
  EXPECT_EQ(result.message, "");
}

TEST(Launcher, SpellsTheMeetingPointPlainly) {
  for (const char* address : {"::ffff:127.0.0.1", "[::ffff:127.0.0.1]", "127.0.0.1"}) {
    const LaunchResult result = launch_ranks({.nproc_per_node = 2, .master_addr = address}, [] {
      const std::string given = environment_string("MASTER_ADDR").value_or("none");
      if (given != "127.0.0.1") throw Error(given);
    });
    EXPECT_EQ(result.message, "") << address;
  }
}

TEST(Launcher, TellsAtOnceOfANameThatIsNotKnown) {
  for (const int nnodes : {1, 2}) {
    const auto start = Clock::now();
    try {
      launch_ranks({.master_port = 29511, .nnodes = nnodes, .master_addr = "no such host."}, [] {});
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("cannot resolve the host 'no such host.'"));
    }
    EXPECT_LT(seconds_since(start), 30);
  }
}

struct Failing {
  const char* what;
  std::function<void()> fail;
  int exit_code;
  const char* message;
};

// Rank 1 of three fails while the others wait forever.
TEST(Launcher, NamesTheRankThatFailed) {
  const Failing cases[] = {
      {"data", [] { throw DataError("data file x is truncated\nbacktrace"); }, 1,
       "rank 1: data file x is truncated"},
      {"configuration", [] { throw ConfigError("no such recipe"); }, 2, "rank 1: no such recipe"},
      {"communication", [] { throw TimeoutError("barrier: rank 2 is missing"); }, 1,
       "rank 1: barrier: rank 2 is missing"},
      {"a text that names the rank", [] { throw CommError("rank 1: cannot connect"); }, 1,
       "rank 1: cannot connect"},
      {"not a std::exception", [] { throw 7; }, 1,
       "rank 1: an exception that is not a std::exception"},
      {"long text", [] { throw Error(std::string(1 << 20, 'x')); }, 1, "rank 1: xxx"},
      {"SIGKILL", [] { raise(SIGKILL); }, 1, "rank 1 was killed by signal 9 (Killed): if nobody"},
      {"SIGTERM from outside", [] { raise(SIGTERM); }, 1,
       "rank 1 was killed by signal 15 (Terminated)"},
      {"exit", [] { _exit(3); }, 1, "rank 1 ended with exit code 3"},
  };
  for (const Failing& expected : cases) {
    SCOPED_TRACE(expected.what);
    const std::size_t descriptors = descriptor_count();
    const auto start = Clock::now();
    const LaunchResult result = launch_ranks({.nproc_per_node = 3}, [&] {
      if (my_rank() == 1) expected.fail();
      hang();
    });
    EXPECT_LT(seconds_since(start), 2);
    EXPECT_EQ(result.failed_rank, 1);
    EXPECT_EQ(result.exit_code, expected.exit_code);
    EXPECT_THAT(result.message, StartsWith(expected.message));
    EXPECT_EQ(result.message.find('\n'), std::string::npos);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(descriptor_count(), descriptors);
  }
}

TEST(Launcher, KeepsTheWholeTextOfAnException) {
  const LaunchResult result = launch_ranks({}, [] { throw Error("first\nsecond"); });
  EXPECT_EQ(result.message, "rank 0: first");
  EXPECT_EQ(result.details, "first\nsecond");
}

TEST(Launcher, EndsRanksThatIgnoreTheRequest) {
  Channel ready;
  const auto start = Clock::now();
  const LaunchResult result = launch_ranks({.nproc_per_node = 2}, [&] {
    if (my_rank() == 1) {
      signal(SIGTERM, SIG_IGN);
      ready.write_line("ready");
      hang();
    }
    ready.read_line();
    throw DataError("broken");
  });
  EXPECT_EQ(result.message, "rank 0: broken");
  EXPECT_GE(seconds_since(start), 0.5);  // the rank had its grace period
  EXPECT_LT(seconds_since(start), 2);
}

void wait_until_ended(pid_t process) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (fd < 0) return;  // the process has already ended
  pollfd ended{fd, POLLIN, 0};
  poll(&ended, 1, -1);
}

// The stopped rank cannot notice its own deadlines, and the ranks that have joined wait for longer.
// It is the second of its host and the fifth of the job.
TEST(Launcher, NamesAStoppedRankThatNeverJoins) {
  const auto start = Clock::now();
  const LaunchOptions options = {.nproc_per_node = 3,
                                 .master_port = 29511,
                                 .nnodes = 2,
                                 .node_rank = 1,
                                 .join_timeout = Milliseconds(300)};
  const LaunchResult result = launch_ranks(options, [] {
    if (my_rank() == 4) raise(SIGSTOP);
    joined_group();
    hang();
  });
  EXPECT_EQ(result.message,
            "rank 4 has not joined the group within 0.3 s: stopped by a signal, and not continued");
  EXPECT_EQ(result.failed_rank, 4);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_LT(seconds_since(start), 20);
}

// Rank 2 has not joined either, but it may wait for the stopped one. The launcher does not wait
// until its time has passed, too.
TEST(Launcher, NamesAStoppedRankBesideOneThatIsMissing) {
  const auto start = Clock::now();
  const Milliseconds join_timeout(4000);
  const LaunchResult result = launch_ranks({.nproc_per_node = 3, .join_timeout = join_timeout}, [] {
    if (my_rank() == 1) raise(SIGSTOP);
    if (my_rank() == 0) joined_group();
    hang();
  });
  EXPECT_EQ(result.message,
            "rank 1 has not joined the group within 4 s: stopped by a signal, and not continued");
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_GE(seconds_since(start), 4);
  EXPECT_LT(seconds_since(start), 12) << "twice the time and five seconds";
}

TEST(Launcher, NamesRanksThatDoNotJoin) {
  const auto start = Clock::now();
  const LaunchResult result =
      launch_ranks({.nproc_per_node = 2, .join_timeout = Milliseconds(300)}, [] { hang(); });
  EXPECT_EQ(result.message, "ranks 0, 1 have not joined the group within 0.3 s");
  EXPECT_EQ(result.failed_rank, 0);
  EXPECT_GE(seconds_since(start), 5.55) << "twice the time and five seconds";
}

TEST(Launcher, GivesRanksThatHaveJoinedAllTheTime) {
  const LaunchResult result =
      launch_ranks({.nproc_per_node = 2, .join_timeout = Milliseconds(1)}, [] {
        joined_group();
        std::this_thread::sleep_for(std::chrono::seconds(3));
      });
  EXPECT_TRUE(result.ok()) << result.message;
}

TEST(Launcher, RefusesADeadlineForRanksThatCannotTell) {
  const LaunchOptions options{
      .nproc_per_node = 2, .ranks_exec = true, .join_timeout = Milliseconds(1)};
  EXPECT_THROW(launch_ranks(options, [] {}), ConfigError);
}

// An error that a rank reports because a peer ended is not the cause, even if it came earlier.
TEST(Launcher, ReportsTheCauseNotItsEcho) {
  const Failing causes[] = {
      {"killed", [] { raise(SIGKILL); }, 1, "rank 1 was killed by signal 9"},
      {"failed", [] { throw DataError("broken"); }, 1, "rank 1: broken"},
  };
  for (const Failing& cause : causes) {
    SCOPED_TRACE(cause.what);
    Channel connection;
    const LaunchResult result = launch_ranks({.nproc_per_node = 2}, [&] {
      if (my_rank() == 0) {
        connection.write_line(std::to_string(getpid()));
        throw CommError("lost rank 1");
      }
      wait_until_ended(std::stoi(connection.read_line()));
      cause.fail();
    });
    EXPECT_EQ(result.failed_rank, 1);
    EXPECT_THAT(result.message, StartsWith(cause.message));
  }
}

// Runs a launcher whose ranks hang, as a process in its own process group. The ranks hold `alive`.
pid_t fork_launcher(Channel& alive, Channel& outcome, int rank_count) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setpgid(0, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
  const LaunchResult result = launch_ranks({.nproc_per_node = rank_count}, [&] {
    alive.write_line("ready");
    hang();
  });
  outcome.write_line(str(result.exit_code, " ", result.interrupted_by, " ", result.message));
  _exit(result.exit_code);
}

TEST(Launcher, EndsAllRanksWhenInterrupted) {
  struct Case {
    int signal;
    bool whole_group;  // as a terminal does on Ctrl-C
    const char* outcome;
  };
  const Case cases[] = {{SIGINT, true, "130 2 interrupted by signal 2 (Interrupt)"},
                        {SIGINT, false, "130 2 interrupted by signal 2 (Interrupt)"},
                        {SIGTERM, true, "143 15 interrupted by signal 15 (Terminated)"},
                        {SIGTERM, false, "143 15 interrupted by signal 15 (Terminated)"},
                        {SIGHUP, false, "129 1 interrupted by signal 1 (Hangup)"}};
  for (const Case& expected : cases) {
    SCOPED_TRACE(str("signal ", expected.signal, expected.whole_group ? " to the group" : ""));
    Channel alive;
    Channel outcome;
    const pid_t launcher = fork_launcher(alive, outcome, 2);
    alive.read_line();
    alive.read_line();
    const auto start = Clock::now();
    kill(expected.whole_group ? -launcher : launcher, expected.signal);
    EXPECT_EQ(outcome.read_line(), expected.outcome);
    EXPECT_TRUE(alive.wait_for_end());
    EXPECT_LT(seconds_since(start), 2);
    waitpid(launcher, nullptr, 0);
  }
}

// Reports each signal that asks this rank to end to the test, and keeps running.
int asked_fd = -1;
void stay(int) {
  if (write(asked_fd, "asked\n", 6) != 6) _exit(9);
}

// A launcher whose ranks ignore requests to end, with a grace period longer than a test lasts.
pid_t fork_patient_launcher(Channel& from_rank, Channel& outcome) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (const int number : {SIGINT, SIGTERM}) signal(number, SIG_DFL);  // not as in a background job
  const LaunchOptions patient = {.grace = std::chrono::minutes(5)};
  const LaunchResult result = launch_ranks(patient, [&] {
    asked_fd = from_rank.writer();
    for (const int number : {SIGINT, SIGTERM}) signal(number, stay);
    from_rank.write_line("ready");
    hang();
  });
  outcome.write_line(str(result.exit_code, " ", result.message));
  _exit(result.exit_code);
}

TEST(Launcher, EndsAllRanksAtOnceWhenInterruptedTwice) {
  for (const int second : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(str("then signal ", second));
    Channel from_rank;
    Channel outcome;
    const pid_t launcher = fork_patient_launcher(from_rank, outcome);
    EXPECT_EQ(from_rank.read_line(), "ready");
    kill(launcher, SIGINT);
    EXPECT_EQ(from_rank.read_line(), "asked");
    // Signals that are closer together count as one.
    std::this_thread::sleep_for(kOneRequest + Milliseconds(50));
    kill(launcher, second);
    try {
      EXPECT_EQ(outcome.read_line(), "130 interrupted by signal 2 (Interrupt)");
    } catch (const std::exception&) {
      ADD_FAILURE() << "the launcher still waits for its ranks";
      kill(launcher, SIGKILL);
    }
    EXPECT_TRUE(from_rank.wait_for_end());
    waitpid(launcher, nullptr, 0);
  }
}

TEST(Launcher, LeavesNoRankBehindWhenKilled) {
  Channel alive;
  Channel outcome;
  const pid_t launcher = fork_launcher(alive, outcome, 3);
  for (int rank = 0; rank < 3; ++rank) alive.read_line();
  kill(launcher, SIGKILL);
  EXPECT_TRUE(alive.wait_for_end());
  waitpid(launcher, nullptr, 0);
}

TEST(Launcher, RefusesABusyPort) {
  const int taken = comm::listen_on("127.0.0.1", 0);
  const std::uint16_t port = comm::bound_port(taken);
  try {
    launch_ranks({.nproc_per_node = 2, .master_port = port}, [] { _exit(9); });
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                StartsWith(str("cannot listen on 127.0.0.1:", port,
                               ": Address already in use; choose another port (MASTER_PORT)")));
  }
  close(taken);
}

// Listens as other programs do. PyTorch sets SO_REUSEADDR; programs unaware of Lockstep may not.
bool can_listen(std::uint16_t port, bool reuse) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = reuse ? 1 : 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool listens =
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && listen(fd, 1) == 0;
  close(fd);
  return listens;
}

TEST(Launcher, KeepsThePortFreeForRanksThatBecomeAnotherProgram) {
  const LaunchResult result = launch_ranks({.ranks_exec = true}, [] {
    const auto worker = worker_environment();
    if (worker->listen_fd) throw Error("an inherited socket");
    if (can_listen(worker->master_port, false)) throw Error("anybody could take the port");
    if (!can_listen(worker->master_port, true)) throw Error("rank 0 cannot take the port");
  });
  EXPECT_EQ(result.message, "");
  const int taken = comm::listen_on("127.0.0.1", 0);
  const std::uint16_t port = comm::bound_port(taken);
  EXPECT_EQ(testing_support::message_of<ConfigError>(
                [&] { launch_ranks({.master_port = port, .ranks_exec = true}, [] {}); }),
            str("the ranks cannot meet at 127.0.0.1:", port,
                ": Address already in use; choose another master_port"));
  close(taken);
}

TEST(Launcher, ReturnsTheExitCodeOfAnotherProgram) {
  const Failing cases[] = {
      {"exit", [] { _exit(3); }, 3, "rank 0 ended with exit code 3"},
      {"signal", [] { raise(SIGTERM); }, 143, "rank 0 was killed by signal 15"},
      {"not started", [] { throw ConfigError("no such program"); }, 2, "rank 0: no such program"},
  };
  for (const Failing& expected : cases) {
    SCOPED_TRACE(expected.what);
    const LaunchResult result = launch_ranks({.ranks_exec = true}, expected.fail);
    EXPECT_EQ(result.exit_code, expected.exit_code);
    EXPECT_THAT(result.message, StartsWith(expected.message));
  }
}

// The report passes through the process between the launcher and the ranks.
TEST(Launcher, KeepsTheWholeTextOfARankThatDidNotBecomeAnotherProgram) {
  const std::string rest(100'000, 'x');
  const LaunchResult result = launch_ranks({.nproc_per_node = 2, .ranks_exec = true}, [&] {
    if (my_rank() == 1) throw DataError("first\n" + rest);
    hang();
  });
  EXPECT_EQ(result.message, "rank 1: first");
  EXPECT_EQ(result.details, ("first\n" + rest).substr(0, 32 * 1024));
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.interrupted_by, 0);
}

// A rank that was asked to end by a signal may have been asked because its peer failed.
TEST(Launcher, ReportsTheCauseNotTheSignalThatFollowed) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    SCOPED_TRACE(number);
    Channel connection;
    const LaunchResult result = launch_ranks({.nproc_per_node = 2}, [&] {
      if (my_rank() == 0) {
        connection.write_line(std::to_string(getpid()));
        signal(number, SIG_DFL);
        raise(number);
      }
      wait_until_ended(std::stoi(connection.read_line()));
      throw DataError("broken");
    });
    EXPECT_EQ(result.message, "rank 1: broken");
    EXPECT_EQ(result.failed_rank, 1);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.interrupted_by, 0);
  }
}

TEST(Launcher, RefusesAHostOutsideOfTheJob) {
  const LaunchOptions cases[] = {
      {.master_port = 29511, .nnodes = 2, .node_rank = 2},
      {.master_port = 29511, .nnodes = 2, .node_rank = -1},
      {.master_port = 29511, .nnodes = 0},
      {.nnodes = 2, .node_rank = 1},  // the port is missing
  };
  for (const LaunchOptions& options : cases) {
    EXPECT_THROW(launch_ranks(options, [] { _exit(9); }), ConfigError);
  }
}

TEST(Launcher, RefusesAnImpossibleNumberOfRanks) {
  for (const int ranks : {-1, 0, 1025}) {
    EXPECT_THROW(launch_ranks({.nproc_per_node = ranks}, [] { _exit(9); }), ConfigError) << ranks;
  }
}

TEST(Launcher, RestoresSignalsInRanksAndAfterwards) {
  const LaunchResult result = launch_ranks({}, [] {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (sigismember(&mask, SIGTERM) || sigismember(&mask, SIGCHLD)) throw Error("still blocked");
  });
  EXPECT_EQ(result.message, "");
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_FALSE(sigismember(&mask, SIGTERM));
  EXPECT_FALSE(sigismember(&mask, SIGCHLD));
}

TEST(Launcher, WritesBufferedTextOnce) {
  testing::internal::CaptureStdout();
  printf("launcher ");
  const LaunchResult result = launch_ranks({.nproc_per_node = 2}, [] {
    if (my_rank() == 0) printf("rank");
  });
  EXPECT_TRUE(result.ok());
  fflush(stdout);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "launcher rank");
}

}  // namespace
}  // namespace lockstep::launch
