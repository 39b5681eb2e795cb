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

// Two ranks connect while strangers do. Returns the ranks' errors while they connect; ranks that
// are connected must be connected to each other.
std::vector<std::string> connect_beside_strangers(bool talk, std::chrono::milliseconds timeout) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::optional<Strangers> strangers;
  const auto before = listening_ports();
  return testing_support::run_threads(2, [&](int rank) {
    if (rank == 1) {  // late: rank 0 already listens, and has written its address
      const Deadline deadline(std::chrono::seconds(20));
      while (store->getNumKeys() == 0 && !deadline.expired()) std::this_thread::yield();
      std::set<std::uint16_t> ports;
      for (const std::uint16_t port : listening_ports()) {
        if (!before.contains(port)) ports.insert(port);
      }
      if (ports.empty()) ADD_FAILURE() << "rank 0 does not listen";
      strangers.emplace(ports, talk);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for rank 0 to accept them
    }
    testing_support::Caller caller(testing_support::connect_gloo(store, "test", rank, 2, timeout),
                                   rank, 2);
    try {
      auto tensor = torch::full({4}, rank + 1.0F);
      caller.all_reduce(tensor, ReduceOp::kSum);
      EXPECT_EQ(tensor[3].item<float>(), 3);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << " was connected to a stranger: " << error.what();
    }
  });
}

// Gloo alone takes the stranger for rank 1 and sends it the tensors of rank 0. Of each two ranks,
// Gloo lets the one with the smaller address listen, so that about half of the attempts fail by
// themselves.
TEST(GlooStrangers, AreNotTakenForRanks) {
  for (const bool talk : {false, true}) {
    SCOPED_TRACE(talk ? "the stranger sends back what it receives" : "the stranger is silent");
    int refused = 0;
    for (int attempt = 0; attempt < 16 && refused == 0; ++attempt) {
      const auto errors = connect_beside_strangers(talk, std::chrono::seconds(talk ? 20 : 3));
      if (errors == testing_support::no_errors(2)) continue;
      ++refused;
      for (const std::string& error : errors) {
        EXPECT_THAT(error, AnyOf(HasSubstr("over Gloo"), HasSubstr("over gloo"))) << error;
      }
    }
    EXPECT_EQ(refused, 1);
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
  // The first rank that notices ends the group with its words.
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AnyOf(HasSubstr("rank 4: the process that connected as rank 7 over Gloo is "
                                       "not that rank"),
                             HasSubstr("rank 7: the process that connected as rank 4 over Gloo is "
                                       "not that rank")))
        << error;
  }
}

// Each pair of three ranks proves itself, twice on the same connections.
TEST(GlooStrangers, AreNotFoundAmongRanks) {
  const auto errors = testing_support::run_gloo_threads(3, [](testing_support::Caller& caller) {
    for (int turn = 0; turn < 2; ++turn) {
      gloo::prove_peers(*caller.backend, str("key ", turn), caller.rank, {4, 7, 9},
                        std::chrono::seconds(20));
    }
  });
  EXPECT_EQ(errors, testing_support::no_errors(3));
}

// Rank 0 draws the key, and the store gives it to the others.
TEST(GlooStrangers, DoNotKnowTheKeyOfAnotherMeeting) {
  const auto first = c10::make_intrusive<c10d::HashStore>();
  const auto second = c10::make_intrusive<c10d::HashStore>();
  const std::string key = gloo::shared_key(*first, 0);
  EXPECT_EQ(key.size(), 32U);
  EXPECT_EQ(gloo::shared_key(*first, 1), key);
  EXPECT_EQ(gloo::shared_key(*first, 2), key);
  EXPECT_NE(gloo::shared_key(*second, 0), key);
}

}  // namespace
}  // namespace lockstep::comm
