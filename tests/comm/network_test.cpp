#include <lockstep/comm/store/network.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include <lockstep/comm/diagnostics/doorbell.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/support/silent_place.h>

namespace lockstep::comm {
namespace {

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
              HasSubstr(str("cannot listen on 127.0.0.1:", port, ": Address already in use")));
  close(fd);
}

TEST(Network, GivesUpAtTheDeadline) {
  const int fd = listen_on("127.0.0.1", 0);
  const std::uint16_t port = bound_port(fd);
  close(fd);
  const auto start = Clock::now();
  EXPECT_THROW(connect_to_listener("127.0.0.1", port, std::chrono::milliseconds(100)),
               TimeoutError);
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
  const Case cases[] = {
      {"127.0.0.1", true, false}, {"127.0.0.1", false, false},    {"localhost", true, false},
      {"::1", true, false},       {"10.213.77.1", true, true},    {"10.213.77.1", false, true},
      {"0.0.0.0", false, true},   {"no such host.", false, true}, {"no such host.", true, true}};
  for (const Case& each : cases) {
    EXPECT_EQ(is_reached_from_outside(each.host, each.several_hosts), each.expected) << each.host;
  }
}

TEST(Network, ResolvesAndRoutes) {
  EXPECT_EQ(resolve_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(local_address_towards("127.0.0.1", 1), "127.0.0.1");
  EXPECT_THAT(error_of([] { resolve_address("no such host."); }), HasSubstr("cannot resolve"));
}

}  // namespace
}  // namespace lockstep::comm
