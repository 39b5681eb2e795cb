#include <lockstep/comm/network.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>

namespace lockstep {
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
  EXPECT_THAT(error_of([&] { connect_to_listener("127.0.0.2", port, std::chrono::milliseconds(50)); }),
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
  EXPECT_THROW(connect_to_listener("127.0.0.1", port, std::chrono::milliseconds(100)), TimeoutError);
  EXPECT_GE(seconds_since(start), 0.1);
  EXPECT_LT(seconds_since(start), 2);
}

TEST(Network, KnowsWhoIsReachedFromOutside) {
  struct Case {
    const char* host;
    bool several_hosts;
    bool expected;
  };
  const Case cases[] = {{"127.0.0.1", true, false},   {"127.0.0.1", false, false},
                        {"localhost", true, false},   {"::1", true, false},
                        {"10.213.77.1", true, true},  {"10.213.77.1", false, true},
                        {"0.0.0.0", false, true},     {"no such host.", false, true},
                        {"no such host.", true, true}};
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
}  // namespace lockstep
