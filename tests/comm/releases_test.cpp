// What remains after each use of a class that owns descriptors, memory or list entries, also after
// its failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
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
#include <lockstep/comm/waiting/progress.h>
#include <lockstep/core/descriptor.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/shm_group.h>
#include <tests/comm/served_store.h>
#include <tests/support/captured_log.h>
#include <tests/support/process_usage.h>
#include <tests/support/ranks.h>

namespace lockstep::comm {
namespace {

struct Holdings {
  std::size_t descriptors = 0;
  int shared_maps = 0;
  bool operator==(const Holdings&) const = default;
};

void PrintTo(const Holdings& held, std::ostream* out) {
  *out << held.descriptors << " descriptors, " << held.shared_maps << " maps of shared memory";
}

Holdings holdings_now() {
  Holdings held{.descriptors = testing_support::descriptor_count()};
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

// The barriers let both ranks reach a state before one of them counts, and keep it until then.
TEST(Releases, UnmapSymmetricMemoryWhileItsGroupLives) {
  with_group([](shm::Engine& engine, int rank) {
    std::uint64_t number = 0;
    const auto maps_on_all_ranks = [&] {
      const auto meet = [&] {
        engine.wait(engine.post({.kind = CallKind::kBarrier}, number++, nullptr, nullptr),
                    testing_support::kTimeout);
      };
      meet();
      const int maps = holdings_now().shared_maps;
      meet();
      return maps;
    };
    const int before = maps_on_all_ranks();
    std::shared_ptr<std::byte> first = engine.allocate(100, testing_support::kTimeout);
    std::shared_ptr<std::byte> second = engine.allocate(100, testing_support::kTimeout);
    const std::byte* const place = first.get();
    EXPECT_TRUE(engine.place_of(place, 100));
    EXPECT_EQ(maps_on_all_ranks(), before + 2);
    first.reset();
    EXPECT_FALSE(engine.place_of(place, 100)) << "rank " << rank;
    EXPECT_TRUE(engine.place_of(second.get(), 100)) << "rank " << rank;
    EXPECT_EQ(maps_on_all_ranks(), before + 1) << "rank " << rank;
    second.reset();
    EXPECT_EQ(maps_on_all_ranks(), before) << "rank " << rank;
  });
}

// Counts the blocks of memory that it has provided and that have not been returned.
template <class T>
struct CountedAllocator {
  using value_type = T;

  explicit CountedAllocator(int& counter) : blocks(&counter) {}
  template <class Other>
  CountedAllocator(const CountedAllocator<Other>& other) : blocks(other.blocks) {}

  T* allocate(std::size_t count) {
    ++*blocks;
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, std::size_t count) {
    --*blocks;
    std::allocator<T>().deallocate(memory, count);
  }
  bool operator==(const CountedAllocator&) const = default;

  int* blocks;
};

struct IdleGroup final : Progressing {
  bool advance() noexcept override { return false; }
};

// An entry of the list keeps the memory of a group, though not the group itself.
TEST(Releases, DropTheProgressOfGroupsThatAreGone) {
  int blocks = 0;
  Progress progress;
  for (int i = 0; i < 3; ++i) {
    const auto group = std::allocate_shared<IdleGroup>(CountedAllocator<IdleGroup>(blocks));
    progress.add(group);
    EXPECT_EQ(blocks, 1) << i;
    EXPECT_TRUE(progress.has_members());
  }
  EXPECT_FALSE(progress.has_members());
}

}  // namespace
}  // namespace lockstep::comm
