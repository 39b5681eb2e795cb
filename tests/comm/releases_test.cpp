// Descriptors and shared memory after each use of a class that owns some, also after its failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/comm/backends/shm/segment.h>
#include <lockstep/comm/store/connection.h>
#include <lockstep/comm/store/network.h>
#include <lockstep/comm/store/server.h>
#include <lockstep/core/descriptor.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/shm_group.h>
#include <tests/comm/served_store.h>
#include <tests/support/captured_log.h>
#include <tests/support/ranks.h>

namespace lockstep::comm {
namespace {

struct Holdings {
  std::ptrdiff_t descriptors = 0;
  int shared_maps = 0;
  bool operator==(const Holdings&) const = default;
};

void PrintTo(const Holdings& held, std::ostream* out) {
  *out << held.descriptors << " descriptors, " << held.shared_maps << " maps of shared memory";
}

Holdings holdings_now() {
  Holdings held;
  held.descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:lockstep") != std::string::npos) ++held.shared_maps;
  }
  return held;
}

void with_refused_client(tcp_store::Mac mac) {
  const testing_support::CapturedLog log;
  const tcp_store::ServedStore store({.mac = tcp_store::mac_of_key("secret")});
  EXPECT_THROW(tcp_store::Connection{store.options(std::move(mac))}, CommError);
}

void with_group(const std::function<void(shm::Engine&, int rank)>& use) {
  const testing_support::ShmGroup group(2);
  const auto errors = testing_support::run_threads(2, [&](int rank) {
    const auto engine = group.engine(rank);
    use(*engine, rank);
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
}

const std::pair<const char*, std::function<void()>> kUses[] = {
    {"a store and its client",
     [] {
       const tcp_store::ServedStore store;
       tcp_store::Connection client(store.options());
       client.set("k", "v");
       EXPECT_TRUE(client.check({"k"}));
     }},
    {"a client that outlives its store",
     [] {
       auto store = std::make_unique<tcp_store::ServedStore>();
       tcp_store::Connection client(store->options());
       store.reset();
       EXPECT_THROW(client.check({"k"}), std::system_error);
     }},
    {"a client with another secret", [] { with_refused_client(tcp_store::mac_of_key("other")); }},
    {"a client without the secret", [] { with_refused_client({}); }},
    {"a client without a store",
     [] {
       const Descriptor holder(hold_port("127.0.0.1"));
       EXPECT_THROW(tcp_store::Connection({.port = bound_port(holder.get()),
                                           .timeout = std::chrono::milliseconds(20)}),
                    TimeoutError);
     }},
    {"a busy port",
     [] {
       const Descriptor listener(listen_on("127.0.0.1", 0));
       EXPECT_THROW(listen_on("127.0.0.1", bound_port(listener.get())), CommError);
     }},
    {"probes",
     [] {
       const Descriptor holder(hold_port("127.0.0.1"));
       EXPECT_TRUE(is_reached("127.0.0.1", bound_port(holder.get()), std::chrono::seconds(30)));
       const Descriptor listener(listen_on("127.0.0.1", 0));
       EXPECT_TRUE(is_reached("127.0.0.1", bound_port(listener.get()), std::chrono::seconds(30)));
       EXPECT_EQ(local_address_towards("127.0.0.1", 80), "127.0.0.1");
       own_loopback();
     }},
    {"a segment",
     [] {
       const auto segment = shm::Segment::create(1);
       EXPECT_EQ(shm::Segment::open(segment->address()), segment);
       const shm::SegmentAddress address = segment->address();
       segment->close_descriptor();
       EXPECT_THROW(shm::Segment::open(address), CommError);
     }},
    {"symmetric memory",
     [] {
       with_group([](shm::Engine& engine, int) {
         for (int round = 0; round < 3; ++round) {
           EXPECT_NE(engine.allocate(100, testing_support::kTimeout), nullptr);
         }
       });
     }},
    {"symmetric memory that does not fit",
     [] {
       with_group([](shm::Engine& engine, int) {
         EXPECT_THROW(engine.allocate(std::size_t{1} << 50, testing_support::kTimeout),
                      ConfigError);
       });
     }},
    {"symmetric memory of different sizes",
     [] {
       with_group([](shm::Engine& engine, int rank) {
         EXPECT_THROW(engine.allocate(rank == 0 ? 100 : 200, testing_support::kTimeout), CommError);
       });
     }},
    {"a group that has ended",
     [] {
       with_group([](shm::Engine& engine, int rank) {
         if (rank == 0) engine.abort("enough");
         EXPECT_THROW(engine.allocate(100, testing_support::kTimeout), CommError);
       });
     }},
};

TEST(Releases, LeaveNothingOpen) {
  for (const auto& [name, use] : kUses) {
    use();  // the first use may open what the process keeps
    const Holdings before = holdings_now();
    use();
    EXPECT_EQ(holdings_now(), before) << name;
  }
}

}  // namespace
}  // namespace lockstep::comm
