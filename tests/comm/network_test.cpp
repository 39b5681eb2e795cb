#include <lockstep/comm/store/network.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/comm/diagnostics/doorbell.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>
#include <tests/support/ranks.h>
#include <tests/support/silent_place.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::comm {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Network, ListensOnTheGivenInterfaceOnly) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  EXPECT_GT(port, 0);
  close(connect_to_listener("127.0.0.1", port, std::chrono::seconds(1)));
  EXPECT_THAT(
      error_of([&] { connect_to_listener("127.0.0.2", port, std::chrono::milliseconds(50)); }),
      HasSubstr("nobody listens at 127.0.0.2"));
  close(fd);
}

TEST(Network, SaysThatAPortIsBusy) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  EXPECT_THAT(error_of([&] { listen_on("127.0.0.1", port); }),
              HasSubstr(str("cannot listen on 127.0.0.1:", port,
                            ": Address already in use; choose "
                            "another port (MASTER_PORT)")));
  close(fd);
  EXPECT_EQ(error_of([&] { listen_on("192.0.2.1", 0); }),
            "cannot listen on 192.0.2.1:0: Cannot assign requested address");
  EXPECT_THAT(error_of([&] { hold_port("192.0.2.1"); }),
              HasSubstr("cannot hold a port of 192.0.2.1: Cannot assign"));
}

// A held port belongs to nobody else, and nobody listens there.
TEST(Network, HoldsAPort) {
  const int fd = hold_port("127.0.0.1");
  const std::uint16_t port = bound_port(fd);
  EXPECT_GT(port, 0);
  EXPECT_THAT(error_of([&] { listen_on("127.0.0.1", port); }), HasSubstr("already in use"));
  EXPECT_THAT(
      error_of([&] { connect_to_listener("127.0.0.1", port, std::chrono::milliseconds(50)); }),
      HasSubstr("nobody listens at 127.0.0.1"));
  close(fd);
  EXPECT_THAT(error_of([] { bound_port(-1); }), HasSubstr("cannot tell the port of a socket"));
}

int option_of(int fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  getsockopt(fd, level, option, &value, &length);
  return value;
}

// Half of the time passes before the first probe, and three more probes take the other half.
TEST(Network, GivesUpAHostThatIsSilent) {
  struct Case {
    std::chrono::milliseconds timeout;
    int idle, interval, unacknowledged;
  };
  const Case cases[] = {{std::chrono::seconds(60), 30, 10, 60'000},
                        {std::chrono::milliseconds(1500), 1, 1, 1500},
                        {std::chrono::hours(24), 15'000, 5'000, 86'400'000}};
  const int listener = listen_on("127.0.0.1", 0);
  for (const Case& each : cases) {
    const int fd = connect_to_listener("127.0.0.1", bound_port(listener), std::chrono::seconds(10));
    EXPECT_NE(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 0);
    give_up_silent_host(fd, std::chrono::milliseconds(0));
    EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 0) << "0 is no limit";
    give_up_silent_host(fd, each.timeout);
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), each.idle);
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL), each.interval);
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), each.unacknowledged);
    limit_unacknowledged(fd, std::chrono::milliseconds(0));
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    close(fd);
  }
  close(listener);
}

TEST(Network, KnowsThePeerOfAConnection) {
  const int listener = listen_on("127.0.0.2", 0);
  const std::uint16_t port = bound_port(listener);
  const int fd = connect_to_listener("127.0.0.2", port, std::chrono::seconds(10));
  EXPECT_EQ(peer_address(fd), "127.0.0.2");
  EXPECT_EQ(peer_address(listener), "");
  EXPECT_TRUE(is_reached("127.0.0.2", port, std::chrono::seconds(10)));
  close(fd);
  close(listener);
  EXPECT_TRUE(is_reached("127.0.0.2", port, std::chrono::seconds(10)))
      << "the host refuses, so it is reached";
  EXPECT_TRUE(is_reached("no such host.", port, std::chrono::seconds(10)))
      << "the error says nothing of a host";
}

// An address of another host, as behind a translation of addresses: rank 0 listens everywhere.
TEST(Network, ListensEverywhereIfItsAddressIsNotItsOwn) {
  const testing_support::CapturedLog log;
  for (const bool several_hosts : {false, true}) {
    EXPECT_EQ(meeting_address("192.0.2.1", several_hosts), kAnyAddress);
    EXPECT_EQ(contact_address("192.0.2.1", several_hosts), "192.0.2.1");
    EXPECT_EQ(meeting_address("127.0.0.1", several_hosts), "127.0.0.1");
    EXPECT_EQ(contact_address("127.0.0.1", several_hosts), "127.0.0.1");
    EXPECT_EQ(meeting_address("::ffff:127.0.0.1", several_hosts), "127.0.0.1");
  }
  EXPECT_THAT(log.lines(),
              testing::ElementsAre(
                  testing::EndsWith("the meeting point 192.0.2.1 (192.0.2.1) is not an address of "
                                    "this host that others can reach; listening on all interfaces"),
                  HasSubstr("192.0.2.1")));
  EXPECT_EQ(own_loopback(), "127.0.0.1");
}

TEST(Network, GivesUpAtTheDeadline) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  close(fd);
  const auto start = Clock::now();
  EXPECT_EQ(testing_support::message_of<TimeoutError>(
                [&] { connect_to_listener("127.0.0.1", port, std::chrono::milliseconds(100)); }),
            str("nobody listens at 127.0.0.1:", port,
                " after 0.1 s: Connection refused; rank 0 must be started there (MASTER_ADDR, "
                "MASTER_PORT)"));
  EXPECT_GE(seconds_since(start), 0.1);
  EXPECT_LT(seconds_since(start), 2);
}

// If packets are lost, `meanwhile` can tell the user what the process waits for.
TEST(Network, TriesAgainWhereNothingAnswers) {
  const testing_support::SilentPlace host;
  if (!host.is_silent()) GTEST_SKIP() << "this kernel takes every connection";
  const auto start = Clock::now();
  const auto give_up = [] { throw CommError("enough"); };
  EXPECT_EQ(error_of([&] {
              connect_to_listener("127.0.0.1", host.port(), std::chrono::seconds(40), give_up);
            }),
            "enough");
  EXPECT_LT(seconds_since(start), 20);
}

TEST(Network, ASignalDoesNotEndAWait) {
  const testing_support::SilentPlace host;
  if (!host.is_silent()) GTEST_SKIP() << "this kernel takes every connection";
  struct sigaction counts{};
  struct sigaction before{};
  static std::atomic<int> signals;
  signals = 0;
  counts.sa_handler = [](int) { ++signals; };
  ASSERT_EQ(sigaction(SIGUSR1, &counts, &before), 0);
  std::atomic<bool> done = false;
  std::thread sender([&done, waiter = pthread_self()] {
    while (!done) {
      pthread_kill(waiter, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const auto start = Clock::now();
  EXPECT_FALSE(is_reached("127.0.0.1", host.port(), std::chrono::milliseconds(400)));
  EXPECT_GE(seconds_since(start), 0.4);
  done = true;
  sender.join();
  EXPECT_GT(signals, 0);
  sigaction(SIGUSR1, &before, nullptr);
}

// This happens to about one in ten thousand connections to a port without a listener.
TEST(Network, KnowsAConnectionToItself) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_FALSE(is_own_end(fd));
  address.sin_port = htons(bound_port(fd));
  const bool is_connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  EXPECT_EQ(is_own_end(fd), is_connected);
  close(fd);

  const int listener = listen_on("127.0.0.1", 0);
  const int connected =
      connect_to_listener("127.0.0.1", bound_port(listener), std::chrono::seconds(10));
  EXPECT_FALSE(is_own_end(connected));
  close(connected);
  close(listener);
}

// A rank that a debugger stops for hours accepts no connection, but its host must still answer.
TEST(Doorbell, AnswersMoreVisitorsThanAQueueHolds) {
  const Doorbell bell("127.0.0.1");
  EXPECT_THAT(bell.place(), testing::StartsWith("127.0.0.1 "));
  for (int visitor = 0; visitor < 1100; ++visitor) {
    ASSERT_TRUE(host_answers(bell.place(), std::chrono::milliseconds(200))) << visitor;
  }
}

TEST(Network, KnowsWhoIsReachedFromOutside) {
  struct Case {
    const char* host;
    bool several_hosts;
    bool expected;
  };
  const Case cases[] = {{"127.0.0.1", true, false},        {"127.0.0.1", false, false},
                        {"localhost", true, false},        {"::1", true, false},
                        {"10.213.77.1", true, true},       {"10.213.77.1", false, true},
                        {"0.0.0.0", false, true},          {"[::1]", true, false},
                        {"::ffff:127.0.0.1", true, false}, {"127.1", true, false},
                        {"0:0:0:0:0:0:0:1", true, false},  {"[::ffff:127.3.4.5]", true, false},
                        {"LocalHost", true, false},        {"::ffff:10.213.77.1", true, true}};
  for (const Case& each : cases) {
    EXPECT_EQ(is_reached_from_outside(each.host, each.several_hosts), each.expected) << each.host;
  }
  // A name that begins like a loopback address is a name, and one that is not known says nothing.
  for (const char* name : {"127.no such host", "127.0.0.1.no such host", "no such host.", "[::1"}) {
    EXPECT_FALSE(is_loopback(name)) << name;
    for (const bool several_hosts : {false, true}) {
      EXPECT_THAT(error_of([&] { is_reached_from_outside(name, several_hosts); }),
                  HasSubstr(str("cannot resolve the host '", name, "'")));
    }
  }
}

TEST(Network, SpellsHostsPlainly) {
  const std::pair<const char*, const char*> cases[] = {{"[::1]", "::1"},
                                                       {"::ffff:127.0.0.1", "127.0.0.1"},
                                                       {"[::ffff:10.1.2.3]", "10.1.2.3"},
                                                       {"::ffff:7f00:1", "127.0.0.1"},
                                                       {"::1", "::1"},
                                                       {"node1", "node1"},
                                                       {"10.1.2.3", "10.1.2.3"},
                                                       {"[]", "[]"},
                                                       {"", ""},
                                                       {"fe80::1%lo", "fe80::1%lo"}};
  for (const auto& [host, plain] : cases) EXPECT_EQ(plain_host(host), plain) << host;
  EXPECT_EQ(resolve_address("[::1]"), "::1");
  EXPECT_EQ(resolve_address("[::ffff:127.0.0.1]"), "127.0.0.1");
}

TEST(Network, WritesThePortAfterABracketedIpv6Address) {
  EXPECT_EQ(host_and_port("node1", 29500), "node1:29500");
  EXPECT_EQ(host_and_port("10.1.2.3", 0), "10.1.2.3:0");
  EXPECT_EQ(host_and_port("::1", 65535), "[::1]:65535");
  // An address of the block for documentation belongs to no machine, and some have no IPv6.
  EXPECT_THAT(error_of([] { listen_on("2001:db8::1", 29500); }),
              AnyOf(HasSubstr("cannot listen on [2001:db8::1]:29500: "),
                    HasSubstr("cannot make a socket")));
}

// --- Debian's and Ubuntu's /etc/hosts ------------------------------------------------------------

// In a process of its own: makes a network namespace with the given IPv4 addresses besides
// loopback, and an /etc/hosts in which this machine's name is 127.0.1.1, and calls `body`. Returns
// its error, or nothing if such a namespace cannot be made here.
std::optional<std::string> on_a_debian(const std::vector<std::string>& addresses,
                                       const std::function<void()>& body,
                                       const std::string& own_address = "127.0.1.1") {
  constexpr const char* kSkip = "cannot make a network namespace";
  const auto errors = testing_support::run_processes(1, [&](int) {
    const auto command = [&](const std::string& text) {
      if (std::system((text + " >/dev/null 2>&1").c_str()) != 0) throw Error(kSkip);
    };
    if (geteuid() != 0 || unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) throw Error(kSkip);
    command("mount --make-rprivate /");
    command("ip link set lo up");
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      command(str("ip link add w", i, " type veth peer name v", i));
      command(str("ip address add ", addresses[i], "/24 dev w", i));
      command(str("ip link set w", i, " up && ip link set v", i, " up"));
    }
    const testing_support::TemporaryDirectory folder;
    const std::string hosts = (folder / "hosts").string();
    std::ofstream(hosts) << "127.0.0.1 localhost\n"
                         << own_address << " debian-host\n"
                         << "10.213.78.9 another-host\n";
    command("mount --bind " + hosts + " /etc/hosts");
    body();
  });
  if (errors[0] == kSkip) return std::nullopt;
  return errors[0];
}

void require(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

// The address at which ranks look for rank 0 is one at which it listens, on its host and on others.
TEST(Network, RanksOfEveryHostReachWhereRankZeroListens) {
  struct Case {
    std::vector<std::string> addresses;
    std::string own_address;
    std::string host;
    bool several_hosts;
    std::string listens;
    std::string contact;
  };
  const Case cases[] = {
      {{"10.213.78.1"}, "127.0.1.1", "debian-host", true, "10.213.78.1", "10.213.78.1"},
      {{"10.213.78.1"}, "127.0.1.1", "debian-host", false, "127.0.1.1", "127.0.1.1"},
      {{"10.213.78.1"}, "127.0.1.1", "localhost", true, "127.0.0.1", "127.0.0.1"},
      {{"10.213.78.1"}, "127.0.1.1", "10.213.78.1", true, "10.213.78.1", "10.213.78.1"},
      {{"10.213.78.1"}, "10.213.78.1", "debian-host", true, "10.213.78.1", "10.213.78.1"},
      {{"10.213.78.1"}, "::1", "debian-host", true, "10.213.78.1", "10.213.78.1"},
      {{}, "127.0.1.1", "debian-host", true, kAnyAddress, "127.0.0.1"},
      {{"10.213.78.1", "10.213.79.1"}, "127.0.1.1", "debian-host", true, kAnyAddress, "127.0.0.1"},
      {{"10.213.78.1", "10.213.79.1"}, "::1", "debian-host", true, kAnyAddress, "127.0.0.1"},
      {{"10.213.78.1", "10.213.79.1"},
       "127.0.1.1",
       "10.213.79.1",
       true,
       "10.213.79.1",
       "10.213.79.1"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(
        str(each.host, " at ", each.own_address, ", ", each.addresses.size(), " other addresses"));
    const auto error = on_a_debian(
        each.addresses,
        [&] {
          set_log_sink([](LogLevel, const std::string&) {});
          const std::string listens = meeting_address(each.host, each.several_hosts);
          const std::string contact = contact_address(each.host, each.several_hosts);
          require(listens == each.listens, "listens on " + listens);
          require(contact == each.contact, "contact " + contact);
          const int fd = listen_on(listens, 0);
          close(connect_to_listener(contact, bound_port(fd), std::chrono::seconds(5)));
          require(contact_address("another-host", true) == "10.213.78.9", "another host");
        },
        each.own_address);
    if (!error) GTEST_SKIP() << "needs root, ip and mount, to make network namespaces";
    EXPECT_EQ(*error, "");
  }
}

// A name that is not known yet is looked up again after a pause; any other error ends the wait.
TEST(Network, LooksUpANameAgainUntilItsTimeIsOver) {
  const testing_support::CapturedLog log;
  int calls = 0;
  const auto unknown_before = [&](int known) {
    return [&calls, known] {
      if (++calls < known) throw NameNotKnownYet("cannot resolve the host 'a': try again");
    };
  };
  retry_look_up(std::chrono::milliseconds(0), unknown_before(1));
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(error_of([&] { retry_look_up(std::chrono::milliseconds(0), unknown_before(9)); }),
              "cannot resolve the host 'a': try again, for 0 s");
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(log.lines(), testing::IsEmpty());
  calls = 0;
  const auto start = Clock::now();
  retry_look_up(std::chrono::hours(1), unknown_before(3));
  EXPECT_EQ(calls, 3);
  EXPECT_GE(seconds_since(start), 0.2) << "two pauses, so that it does not flood the resolver";
  EXPECT_THAT(log.lines(), testing::ElementsAre("warning: cannot resolve the host 'a': try again; "
                                                "trying again for 20 s"))
      << "once, and no longer than resolvers that never answer deserve";
  const auto other = [&] {
    ++calls;
    throw CommError("no such host");
  };
  EXPECT_EQ(error_of([&] { retry_look_up(std::chrono::hours(1), other); }), "no such host");
  EXPECT_EQ(calls, 4);
}

TEST(Network, ResolvesAndRoutes) {
  EXPECT_EQ(resolve_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(local_address_towards("127.0.0.1", 1), "127.0.0.1");
  EXPECT_THAT(error_of([] { resolve_address("no such host."); }), HasSubstr("cannot resolve"));
}

}  // namespace
}  // namespace lockstep::comm
