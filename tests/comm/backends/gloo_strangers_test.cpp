// A process that does not belong to the job connects to the ports of its ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/gloo/prove_peers.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/gloo_groups.h>

namespace lockstep::comm {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// The ports of 127.0.0.1 on which any process listens.
std::set<std::uint16_t> listening_ports() {
  std::set<std::uint16_t> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number;
    std::string local;
    std::string remote;
    std::string state;
    words >> number >> local >> remote >> state;
    if (state != "0A" || local.rfind("0100007F:", 0) != 0) continue;
    ports.insert(static_cast<std::uint16_t>(std::stoul(local.substr(9), nullptr, 16)));
  }
  return ports;
}

// Connects to each port as the first ranks of a group, as Gloo does it: with a small number of 64
// bits. Strangers are silent afterwards, or send what they receive back.
class Strangers {
 public:
  Strangers(const std::set<std::uint16_t>& ports, bool talk) {
    for (const std::uint16_t port : ports) {
      for (std::uint64_t number = 0; number < 4; ++number) {
        const int fd = connect_to_listener("127.0.0.1", port, std::chrono::seconds(10));
        if (send(fd, &number, sizeof(number), MSG_NOSIGNAL) < 0) continue;
        connections_.push_back(fd);
      }
    }
    if (talk) thread_ = std::jthread([this](const std::stop_token& stop) { reflect(stop); });
  }
  ~Strangers() {
    if (thread_.joinable()) {
      thread_.request_stop();
      thread_.join();
    }
    for (const int fd : connections_) close(fd);
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

 private:
  void reflect(const std::stop_token& stop) {
    std::string bytes(4096, '\0');
    while (!stop.stop_requested()) {
      for (const int fd : connections_) {
        const ssize_t count = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (count > 0) {
          send(fd, bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::vector<int> connections_;
  std::jthread thread_;
};

// Gloo alone takes the stranger for rank 1 and sends it the tensors of rank 0.
TEST(GlooStrangers, AreNotTakenForRanks) {
  for (const bool talk : {false, true}) {
    SCOPED_TRACE(talk ? "the stranger sends back what it receives" : "the stranger is silent");
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto timeout = std::chrono::seconds(talk ? 20 : 3);
    std::optional<Strangers> strangers;
    const auto before = listening_ports();
    const auto errors = testing_support::run_threads(2, [&](int rank) {
      if (rank == 1) {  // late: rank 0 already listens, and has written its address
        const Deadline deadline(std::chrono::seconds(20));
        while (store->getNumKeys() == 0 && !deadline.expired()) std::this_thread::yield();
        std::set<std::uint16_t> ports;
        for (const std::uint16_t port : listening_ports()) {
          if (!before.contains(port)) ports.insert(port);
        }
        if (ports.empty()) throw std::logic_error("no port of rank 0");
        strangers.emplace(ports, talk);
        std::this_thread::sleep_for(std::chrono::milliseconds(200));  // for rank 0 to accept them
      }
      auto backend = testing_support::connect_gloo(store, "test", rank, 2, timeout);
      throw std::logic_error("connected");
    });
    // Both ends of the connection find out: nobody is in the other's place.
    EXPECT_THAT(errors[0], HasSubstr("rank 0"));
    for (const std::string& error : errors) {
      EXPECT_THAT(error, AnyOf(HasSubstr("over Gloo"), HasSubstr("over gloo"))) << error;
    }
  }
}

// Ranks whose keys differ, as if one of them knew no secret.
TEST(GlooStrangers, ProveNothingWithoutTheKey) {
  const auto errors = testing_support::run_gloo_threads(2, [](testing_support::Caller& caller) {
    gloo::prove_peers(*caller.backend, "the same key", caller.rank, {4, 7},
                      std::chrono::seconds(20));
    gloo::prove_peers(*caller.backend, str("key ", caller.rank), caller.rank, {4, 7},
                      std::chrono::seconds(20));
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("over Gloo is not this rank")) << error;
  }
}

}  // namespace
}  // namespace lockstep::comm
