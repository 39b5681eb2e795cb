// Point-to-point messages of the shared-memory engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/shm_group.h>
#include <tests/comm/group/collective_oracle.h>
#include <tests/support/ranks.h>

namespace lockstep::shm {
namespace {

using testing::HasSubstr;
using namespace testing_support;

constexpr int kAnySource = -1;

std::shared_ptr<Transfer> send(Engine& engine, Bytes& bytes, int to, int tag = 0) {
  return engine.post({.kind = CallKind::kSend, .root = to, .count = bytes.size()}, tag,
                     bytes.data());
}
std::shared_ptr<Transfer> receive(Engine& engine, Bytes& bytes, int from, int tag = 0) {
  return engine.post({.kind = CallKind::kRecv, .root = from, .count = bytes.size()}, tag,
                     bytes.data());
}

Bytes message(int from, int to, std::size_t size) {
  return values(detail::DataType::kByte, size, static_cast<std::uint64_t>(from * 100 + to));
}

// Messages of zero bytes up to many times the ring, between all pairs at the same time.
TEST(ShmMessages, TravelBetweenAllPairsAtOnce) {
  constexpr int kSize = 4;
  for (const std::size_t size : {0, 1, 31, 1000, 40000, 3000000}) {
    const ShmGroup group(kSize);
    const auto errors = run_threads(kSize, [&](int rank) {
      auto engine = group.engine(rank);
      std::vector<Bytes> sent(kSize), got(kSize, Bytes(size));
      std::vector<std::shared_ptr<Transfer>> transfers;
      for (int peer = 0; peer < kSize; ++peer) {
        if (peer == rank) continue;
        sent[peer] = message(rank, peer, size);
        transfers.push_back(send(*engine, sent[peer], peer));
        transfers.push_back(receive(*engine, got[peer], peer));
      }
      for (auto& transfer : transfers) engine->wait(*transfer, kTimeout);
      for (int peer = 0; peer < kSize; ++peer) {
        if (peer != rank && got[peer] != message(peer, rank, size)) throw Error(str("from ", peer));
      }
    });
    EXPECT_EQ(errors, no_errors(kSize)) << size << " bytes";
  }
}

// The sender fills the ring, in some cases with a header in its last bytes, before the receiver
// takes anything.
TEST(ShmMessages, FillTheRingToItsLastByte) {
  const ShmGroup group(2);
  const std::size_t ring = Control(group.control->data(), 2, group.options.slot_bytes).ring_bytes();
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    std::uint64_t calls = 0;
    for (const std::size_t left : {0, 1, 31, 32, 33, 63, 64, 65, 104}) {
      const std::size_t most = ring - kHeaderBytes - left;
      std::vector<Bytes> messages;
      for (const std::size_t size : {most, std::size_t{40}, std::size_t{0}, most, ring}) {
        messages.push_back(message(0, static_cast<int>(messages.size()), size));
      }
      std::vector<std::shared_ptr<Transfer>> sends;
      if (rank == 0) {
        for (Bytes& each : messages) sends.push_back(send(*engine, each, 1));
      }
      engine->run({.kind = CallKind::kBarrier}, calls++, nullptr, nullptr, kTimeout, [] {});
      for (auto& each : sends) engine->wait(*each, kTimeout);
      for (std::size_t i = 0; rank == 1 && i < messages.size(); ++i) {
        Bytes got(messages[i].size());
        engine->wait(*receive(*engine, got, 0), kTimeout);
        if (got != messages[i]) throw Error(str("message ", i, " with ", left, " bytes left"));
      }
      engine->run({.kind = CallKind::kBarrier}, calls++, nullptr, nullptr, kTimeout, [] {});
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

// The receiver has taken only a header, which it does not publish, and the sender goes on.
TEST(ShmMessages, GoOnAfterAHeaderThatEndedTheRing) {
  const ShmGroup group(2);
  const Control control(group.control->data(), 2, group.options.slot_bytes);
  const Word& read = control.channel(0, 1).read;
  const auto sender = group.engine(0), receiver = group.engine(1);
  const std::size_t most = control.ring_bytes() - 2 * kHeaderBytes;
  Bytes first = message(0, 1, most), second = message(0, 2, 40), taken(most), rest(40);
  const auto sent_first = send(*sender, first, 1), sent_second = send(*sender, second, 1);
  EXPECT_TRUE(sent_first->done);
  EXPECT_FALSE(sent_second->done);
  const auto took_first = receive(*receiver, taken, 0), took_second = receive(*receiver, rest, 0);
  EXPECT_TRUE(took_first->done);
  EXPECT_FALSE(took_second->done);
  EXPECT_EQ(read, kHeaderBytes + most);
  sender->advance();
  receiver->advance();
  EXPECT_TRUE(sent_second->done);
  EXPECT_TRUE(took_second->done);
  EXPECT_EQ(taken, first);
  EXPECT_EQ(rest, second);
}

// The receiver asks for the last tag first. Messages that block it are buffered and keep their
// order.
TEST(ShmMessages, AreMatchedByTag) {
  for (const std::size_t size : {8, 2000000}) {
    const ShmGroup group(2);
    const auto errors = run_threads(2, [&](int rank) {
      auto engine = group.engine(rank);
      std::vector<Bytes> buffers;
      for (int i = 0; i < 6; ++i) buffers.push_back(message(0, i, size));
      if (rank == 0) {
        std::vector<std::shared_ptr<Transfer>> sends;
        for (int i = 0; i < 6; ++i) sends.push_back(send(*engine, buffers[i], 1, i / 2));
        for (auto& each : sends) engine->wait(*each, kTimeout);
        return;
      }
      for (const int i : {4, 2, 0, 1, 3, 5}) {  // in order for each tag
        Bytes got(size);
        const auto transfer = receive(*engine, got, i % 2 == 0 ? 0 : kAnySource, i / 2);
        engine->wait(*transfer, kTimeout);
        if (got != buffers[i]) throw Error(str("message ", i));
        if (transfer->source != 0) throw Error(str("message ", i, " from ", transfer->source));
      }
    });
    EXPECT_EQ(errors, no_errors(2)) << size << " bytes";
  }
}

TEST(ShmMessages, FromAnySourceSayWhoSent) {
  constexpr int kSize = 5;
  const ShmGroup group(kSize);
  const auto errors = run_threads(kSize, [&](int rank) {
    auto engine = group.engine(rank);
    Bytes bytes(4);
    if (rank != 0) {
      bytes[0] = static_cast<std::byte>(rank);
      engine->wait(*send(*engine, bytes, 0), kTimeout);
      return;
    }
    int sources = 0;
    for (int i = 1; i < kSize; ++i) {
      auto transfer = receive(*engine, bytes, kAnySource);
      engine->wait(*transfer, kTimeout);
      if (static_cast<int>(bytes[0]) != transfer->source) throw Error("wrong source");
      sources += transfer->source;
    }
    if (sources != 10) throw Error("not everybody once");
  });
  EXPECT_EQ(errors, no_errors(kSize));
}

// A message moves while its ranks are in a collective.
TEST(ShmMessages, MoveDuringCollectives) {
  const ShmGroup group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    Bytes bytes = rank == 0 ? message(0, 1, 4000000) : Bytes(4000000);
    auto transfer = rank == 0 ? send(*engine, bytes, 1) : receive(*engine, bytes, 0);
    for (std::uint64_t i = 0; !engine->test(*transfer) || i < 100; ++i) {
      if (i >= 100) continue;
      engine->wait(engine->post({.kind = CallKind::kBarrier}, i, nullptr, nullptr), kTimeout);
    }
    if (bytes != message(0, 1, 4000000)) throw Error("wrong bytes");
  });
  EXPECT_EQ(errors, no_errors(2));
}

// Each rank first waits for its peer's last call, which is in another group. A wait in one group
// must therefore advance the other.
TEST(ShmMessages, WaitingInOneGroupMovesTheOther) {
  const ShmGroup first(2), second(2);
  const auto errors = run_threads(2, [&](int rank) {
    const auto progress = std::make_shared<comm::Progress>();
    auto a = first.engine(rank, progress);
    auto b = second.engine(rank, progress);
    Bytes to_a = message(rank, 1, 3000000), from_a(3000000), to_b = message(rank, 2, 3000000),
          from_b(3000000);
    auto send_a = send(*a, to_a, 1 - rank), receive_a = receive(*a, from_a, 1 - rank);
    auto send_b = send(*b, to_b, 1 - rank), receive_b = receive(*b, from_b, 1 - rank);
    if (rank == 0) {
      a->wait(*send_a, kTimeout);
      a->wait(*receive_a, kTimeout);
      b->wait(*send_b, kTimeout);
      b->wait(*receive_b, kTimeout);
    } else {
      b->wait(*send_b, kTimeout);
      b->wait(*receive_b, kTimeout);
      a->wait(*send_a, kTimeout);
      a->wait(*receive_a, kTimeout);
    }
    if (from_a != message(1 - rank, 1, 3000000) || from_b != message(1 - rank, 2, 3000000)) {
      throw Error("wrong bytes");
    }
  });
  EXPECT_EQ(errors, no_errors(2));
}

TEST(ShmMessages, OfTwoSizesEndTheGroup) {
  const ShmGroup group(2, {.world_ranks = {3, 5}});
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    Bytes bytes(rank == 0 ? 12 : 16);
    const auto transfer = rank == 0 ? send(*engine, bytes, 1) : receive(*engine, bytes, 0);
    engine->wait(*transfer, kTimeout);
    engine->wait(engine->post({.kind = CallKind::kBarrier}, std::uint64_t{0}, nullptr, nullptr),
                 kTimeout);
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 3 sent 12 of bytes to rank 5, which receives 16 of bytes"));
  }
}

TEST(ShmMessages, OfTwoSizesEndTheGroupAlsoWhenTheyWerePutAside) {
  const ShmGroup group(2);
  const auto errors = run_threads(2, [&](int rank) {
    auto engine = group.engine(rank);
    Bytes first(12), second(4), larger(16);
    if (rank == 0) {
      engine->wait(*send(*engine, first, 1, 1), kTimeout);
      engine->wait(*send(*engine, second, 1, 2), kTimeout);
    } else {
      engine->wait(*receive(*engine, second, 0, 2), kTimeout);
      engine->wait(*receive(*engine, larger, 0, 1), kTimeout);
    }
    engine->wait(engine->post({.kind = CallKind::kBarrier}, std::uint64_t{0}, nullptr, nullptr),
                 kTimeout);
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 sent 12 of bytes to rank 1, which receives 16 of bytes"));
  }
}

TEST(ShmMessages, AWaitForOneThatLeftOrIsLateSaysSo) {
  const ShmGroup group(2);
  auto waiting = group.engine(0);
  auto other = group.engine(1);
  Bytes bytes(4);
  auto transfer = receive(*waiting, bytes, 1);
  other = nullptr;
  try {
    waiting->wait(*transfer, kTimeout);
    FAIL();
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(),
                 "rank 1 left the group while rank 0 was in recv[bytes, 4, from rank 1]");
  }
  const ShmGroup second(3);
  auto alone = second.engine(0), silent = second.engine(1), third = second.engine(2);
  auto sent = send(*third, bytes, 1);
  auto from_anybody = receive(*alone, bytes, kAnySource);
  try {
    alone->wait(*from_anybody, std::chrono::milliseconds(50));
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_STREQ(
        error.what(),
        "rank 0 waited 0.05 s in recv[bytes, 4, from any rank]; rank 1 has called nothing yet; "
        "rank 2 last called send[bytes, 4, to rank 1]");
  }
}

}  // namespace
}  // namespace lockstep::shm
