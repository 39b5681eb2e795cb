// Tests the memory order of the engine's words under ThreadSanitizer: a word that is published with
// too weak a memory order shows up as a data race. One thread runs all ranks of the group. Another
// thread acts as a peer that reads only one word, as the protocol permits (control.h), and then
// accesses the memory that this word guards. Nothing else orders the two threads. They access
// memory by plain assignments, because ThreadSanitizer does not see a memset() of known size that
// g++ has inlined.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <ostream>
#include <thread>
#include <vector>

#include <lockstep/comm/backends/shm/engine.h>
#include <tests/comm/backends/shm_group.h>

namespace lockstep::shm {
namespace {

using testing_support::kHeaderBytes;
using testing_support::ShmGroup;

constexpr std::size_t kFloats = 4;
constexpr std::size_t kMessageBytes = 1000;

// Two ranks in one process, and their buffers.
struct World {
  World() {
    EngineOptions options = group.options;
    options.patience.spin = std::chrono::seconds(1);  // so that a tiny call takes its fast path
    for (int rank = 0; rank < 2; ++rank) {
      engines.push_back(std::make_shared<Engine>(group.control, rank, 2, options));
    }
  }

  CallDescription all_reduce() const {
    return {.kind = CallKind::kAllReduce, .type = detail::DataType::kFloat32, .count = kFloats};
  }
  Engine::Ticket post_all_reduce(std::size_t rank) {
    std::byte* const data = reinterpret_cast<std::byte*>(numbers[rank].data());
    return engines[rank]->post(all_reduce(), 0, data, data);
  }
  void run_all_reduce(std::size_t rank) {
    std::byte* const data = reinterpret_cast<std::byte*>(numbers[rank].data());
    engines[rank]->run(all_reduce(), 0, data, data, testing_support::kTimeout, [] {});
  }
  void send() {
    engines[0]->post({.kind = CallKind::kSend, .root = 1, .count = kMessageBytes}, 0, sent.data());
  }
  std::shared_ptr<Transfer> receive() {
    return engines[1]->post({.kind = CallKind::kRecv, .root = 0, .count = kMessageBytes}, 0,
                            received.data());
  }

  RankState& state(int rank) const { return control.state(rank); }
  Channel& channel() const { return control.channel(0, 1); }
  std::byte* ring() const { return control.ring(0, 1); }

  ShmGroup group{2};
  Control control{group.control->data(), 2, group.options.slot_bytes};
  std::vector<std::shared_ptr<Engine>> engines;
  std::vector<std::array<float, kFloats>> numbers{{1, 2, 3, 4}, {10, 20, 30, 40}};
  std::vector<std::byte> sent = std::vector<std::byte>(kMessageBytes, std::byte{7});
  std::vector<std::byte> received = std::vector<std::byte>(kMessageBytes);
};

void look_until(const Word& word, std::uint32_t value) {
  while (word.load(std::memory_order_acquire) != value) std::this_thread::yield();
}

float number_at(const std::byte* data) {
  float number = 0;
  std::memcpy(&number, data, sizeof(number));
  return number;
}

struct Publication {
  const char* name;
  std::function<void(World&)> ranks;  // the ranks' actions
  std::function<void(World&)> peer;   // the actions that the peer may then take
};
void PrintTo(const Publication& c, std::ostream* out) { *out << c.name; }

void read_arrival(World& world) {
  look_until(world.state(0).arrival(0).count, 1);
  EXPECT_NE(world.state(0).arrival(0).history, 0U);
  EXPECT_EQ(number_at(world.state(0).arrival(0).data), 1);
}

void read_description(World& world, const Word& word) {
  look_until(word, 1);
  EXPECT_EQ(world.state(0).chunks[0].call.count, kFloats);
}

// Rank 1 has arrived before, so rank 0's operation is complete when its call returns.
void reduce_on_both(World& world) {
  world.post_all_reduce(1);
  world.post_all_reduce(0);
}
void reduce_in_a_straight_line(World& world) {
  world.post_all_reduce(1);
  world.run_all_reduce(0);
}

// Rank 0 no longer needs rank 1's memory, so rank 1 may write the next data there.
void write_arrival_again(World& world) {
  look_until(world.state(0).released, 1);
  world.state(1).arrival(0).data[0] = std::byte{0};
}

const Publication kPublications[] = {
    {"Arrival", [](World& world) { world.post_all_reduce(0); }, read_arrival},
    {"ArrivalOfATinyCall", reduce_in_a_straight_line, read_arrival},
    {"Arrived", [](World& world) { world.post_all_reduce(0); },
     [](World& world) { read_description(world, world.state(0).arrived); }},
    {"ArrivedAtATinyCall", reduce_in_a_straight_line,
     [](World& world) { read_description(world, world.state(0).arrived); }},
    {"Worked", reduce_on_both,
     [](World& world) { read_description(world, world.state(0).worked); }},
    {"WorkedOnATinyCall", reduce_in_a_straight_line,
     [](World& world) { read_description(world, world.state(0).worked); }},
    {"Released", reduce_on_both, write_arrival_again},
    {"ReleasedATinyCall", reduce_in_a_straight_line, write_arrival_again},
    {"BytesWritten", [](World& world) { world.send(); },
     [](World& world) {
       look_until(world.channel().written, kHeaderBytes + kMessageBytes);
       EXPECT_EQ(world.ring()[kHeaderBytes + kMessageBytes - 1], std::byte{7});
     }},
    {"BytesRead",
     [](World& world) {
       world.receive();
       world.send();
       world.engines[1]->advance();
     },
     [](World& world) {
       look_until(world.channel().read, kHeaderBytes + kMessageBytes);
       world.ring()[kHeaderBytes] = std::byte{0};
     }},
    {"Abort", [](World& world) { world.engines[0]->abort("a reason"); },
     [](World& world) {
       look_until(world.control.header().abort.state, 2);
       EXPECT_STREQ(world.control.header().abort.reason, "a reason");
     }},
    {"Left",
     [](World& world) {
       world.post_all_reduce(0);
       world.engines[0].reset();
     },
     [](World& world) {
       look_until(world.state(0).left, 1);
       EXPECT_EQ(number_at(world.state(0).arrival(0).data), 1);
     }},
};

class ShmMemoryOrder : public ::testing::TestWithParam<Publication> {};

TEST_P(ShmMemoryOrder, HoldsBetweenAWordAndWhatItStandsFor) {
  World world;
  std::thread ranks([&] { GetParam().ranks(world); });
  std::thread peer([&] { GetParam().peer(world); });
  ranks.join();
  peer.join();
}

INSTANTIATE_TEST_SUITE_P(Words, ShmMemoryOrder, ::testing::ValuesIn(kPublications),
                         [](const auto& info) { return info.param.name; });

TEST(ShmMemoryOrder, HoldsBetweenTheEndOfATransferAndItsBytes) {
  World world;
  const std::shared_ptr<Transfer> transfer = world.receive();
  std::thread ranks([&] {
    world.send();
    world.engines[1]->advance();
  });
  std::thread peer([&] {
    while (!transfer->done.load(std::memory_order_acquire)) std::this_thread::yield();
    EXPECT_EQ(world.received.back(), std::byte{7});
  });
  ranks.join();
  peer.join();
}

// A peer that adds itself to the sleepers after rank 0 has checked for sleepers sees the values
// that rank 0 published before. Relaxed accesses signal that moment without ordering anything else.
TEST(ShmMemoryOrder, HoldsBetweenTheWakerAndWhoWouldSleep) {
  World world;
  std::atomic<bool> has_looked = false;
  std::thread ranks([&] {
    world.post_all_reduce(0);
    has_looked.store(true, std::memory_order_relaxed);
  });
  std::thread peer([&] {
    while (!has_looked.load(std::memory_order_relaxed)) std::this_thread::yield();
    RankState& theirs = world.state(0);
    const comm::AwaitedWord word{&theirs.arrival(0).count, 0, &theirs.sleepers};
    sleep_on({&word, 1}, std::chrono::milliseconds(1));
    EXPECT_EQ(theirs.arrival(0).count.load(std::memory_order_relaxed), 1U);
    EXPECT_EQ(number_at(theirs.arrival(0).data), 1);
  });
  ranks.join();
  peer.join();
}

}  // namespace
}  // namespace lockstep::shm
