// Point-to-point messages of the shared-memory engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/comm/backends/shm/engine.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/shm_group.h>
#include <tests/comm/group/collective_oracle.h>
#include <tests/support/messages.h>
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

// Advances the engines of all ranks in this thread, so that nothing depends on how threads are
// scheduled. Returns whether all transfers are done after a bounded number of rounds.
bool come_to_their_end(const std::vector<std::shared_ptr<Engine>>& engines,
                       const std::vector<std::shared_ptr<Transfer>>& transfers) {
  const auto is_done = [](const auto& transfer) { return transfer->done.load(); };
  for (int round = 0; round < 1000; ++round) {
    if (std::all_of(transfers.begin(), transfers.end(), is_done)) return true;
    for (const auto& engine : engines) engine->advance();
  }
  return false;
}

// Messages with three tags, received in every order, from their source or from any, one call after
// the other or all calls at the same time. A message longer than the ring is put aside in pieces,
// and may be asked for meanwhile.
TEST(ShmMessages, BehindOthersAreFoundInEveryOrder) {
  const std::size_t ring = Control(nullptr, 2, 0).ring_bytes();
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, ring + 1}) {
    std::vector<Bytes> messages;
    for (int tag = 0; tag < 3; ++tag) messages.push_back(message(0, tag, size));
    for (const int source : {0, kAnySource}) {
      for (const bool at_once : {false, true}) {
        std::vector<int> order = {0, 1, 2};
        do {
          const std::string what = str(size, " bytes from ", source, at_once ? " at once" : "",
                                       " in the order ", order[0], order[1], order[2]);
          std::vector<Bytes> sent = messages, got(3, Bytes(size));
          const ShmGroup group(2);
          const std::vector engines = {group.engine(0), group.engine(1)};
          std::vector<std::shared_ptr<Transfer>> sends, receives;
          for (int tag = 0; tag < 3; ++tag) sends.push_back(send(*engines[0], sent[tag], 1, tag));
          for (const int tag : order) {
            receives.push_back(receive(*engines[1], got[tag], source, tag));
            if (!at_once) {
              ASSERT_TRUE(come_to_their_end(engines, {receives.back()})) << what << ", tag " << tag;
            }
          }
          ASSERT_TRUE(come_to_their_end(engines, receives)) << what;
          ASSERT_TRUE(come_to_their_end(engines, sends)) << what;
          EXPECT_TRUE(got == messages) << what;
          for (const auto& each : receives) EXPECT_EQ(each->source, 0) << what;
        } while (std::next_permutation(order.begin(), order.end()));
      }
    }
  }
}

// Both senders have a message with another tag in front. Rank 1 does not send the awaited one.
TEST(ShmMessages, BehindOthersAreFoundAtEverySource) {
  Bytes front(8, std::byte{1}), wanted(8, std::byte{2}), got(8);
  const ShmGroup group(3);
  const std::vector engines = {group.engine(0), group.engine(1), group.engine(2)};
  send(*engines[1], front, 0, 5);
  send(*engines[2], front, 0, 5);
  send(*engines[2], wanted, 0, 6);
  const auto first = receive(*engines[0], got, kAnySource, 6);
  ASSERT_TRUE(come_to_their_end(engines, {first}));
  EXPECT_EQ(first->source, 2);
  EXPECT_EQ(got, wanted);
  int sources = 0;
  for (int i = 0; i < 2; ++i) {
    const auto next = receive(*engines[0], got, kAnySource, 5);
    ASSERT_TRUE(come_to_their_end(engines, {next}));
    EXPECT_EQ(got, front);
    sources += next->source;
  }
  EXPECT_EQ(sources, 1 + 2);
}

// The memory of a message is held until the message has moved, and no longer, although a program
// may keep the Work, and with it the Transfer.
TEST(ShmMessages, HoldTheirMemoryUntilTheyAreDone) {
  struct Held {
    std::shared_ptr<Transfer> transfer;
    std::weak_ptr<Bytes> memory;
  };
  const std::size_t large = 2 * Control(nullptr, 2, 0).ring_bytes();
  const ShmGroup group(2);
  const std::vector engines = {group.engine(0), group.engine(1)};
  const auto post = [&](CallKind kind, std::size_t size, int tag) {
    const int rank = kind == CallKind::kSend ? 0 : 1;
    auto memory = std::make_shared<Bytes>(size);
    std::byte* const data = memory->data();
    Held held{nullptr, memory};
    held.transfer = engines[static_cast<std::size_t>(rank)]->post(
        {.kind = kind, .root = 1 - rank, .count = size}, tag, data, std::move(memory));
    return held;
  };
  // The second receive is for a message that is being put aside for the first.
  const std::vector<Held> under_way = {post(CallKind::kSend, large, 0), post(CallKind::kSend, 8, 1),
                                       post(CallKind::kRecv, 8, 1),
                                       post(CallKind::kRecv, large, 0)};
  std::vector<std::shared_ptr<Transfer>> transfers;
  for (const Held& each : under_way) {
    EXPECT_FALSE(each.transfer->done) << describe(each.transfer->call);
    EXPECT_FALSE(each.memory.expired()) << describe(each.transfer->call);
    transfers.push_back(each.transfer);
  }
  ASSERT_TRUE(come_to_their_end(engines, transfers));
  for (const Held& each : under_way) {
    EXPECT_TRUE(each.memory.expired()) << describe(each.transfer->call);
  }
  // The last receive is for a message that has been put aside completely.
  for (const Held& each : {post(CallKind::kSend, 8, 3), post(CallKind::kSend, 8, 4),
                           post(CallKind::kRecv, 8, 4), post(CallKind::kRecv, 8, 3)}) {
    EXPECT_TRUE(each.transfer->done) << describe(each.transfer->call);
    EXPECT_TRUE(each.memory.expired()) << describe(each.transfer->call);
  }
}

// A rank that waits sleeps on these words, and only their writers wake it.
TEST(ShmMessages, AwaitTheWordsOfAllWhoCanMoveThem) {
  using Words = std::vector<Word*>;
  const std::size_t ring = Control(nullptr, 3, 0).ring_bytes();
  Bytes bytes(8), large(2 * ring);
  const ShmGroup group(3);
  const Control control(group.control->data(), 3, group.options.slot_bytes);
  const auto from_1 = &control.channel(1, 0), from_2 = &control.channel(2, 0);
  const auto to_1 = &control.channel(0, 1);
  const auto words_of = [](Engine& engine) {
    std::vector<comm::AwaitedWord> words;
    engine.awaited_words(words);
    Words result;
    for (const comm::AwaitedWord& each : words) result.push_back(each.word);
    return result;
  };
  const auto waiting = group.engine(0);
  EXPECT_EQ(words_of(*waiting), Words());
  receive(*waiting, bytes, 2, 1);
  EXPECT_EQ(words_of(*waiting), Words({&from_2->written})) << "from rank 2";
  receive(*waiting, bytes, kAnySource, 2);
  EXPECT_EQ(words_of(*waiting), Words({&from_1->written, &from_2->written})) << "from any rank";
  send(*waiting, large, 1);
  EXPECT_EQ(words_of(*waiting), Words({&to_1->read, &from_1->written, &from_2->written}))
      << "to a full ring, too";
  // A message that is half received, and another one that is half put aside.
  for (const int tag : {0, 1}) {
    Bytes more(4 * ring), taken(4 * ring);
    const ShmGroup pair(2);
    const Control of_pair(pair.control->data(), 2, pair.options.slot_bytes);
    const auto receiver = pair.engine(0), sender = pair.engine(1);
    send(*sender, more, 0, 0);
    receive(*receiver, tag == 0 ? taken : bytes, kAnySource, tag);
    EXPECT_EQ(words_of(*receiver), Words({&of_pair.channel(1, 0).written})) << "tag " << tag;
  }
}

// The 32-bit counters of bytes and chunks wrap around. The place of a byte or chunk in its ring is
// the counter modulo the size of the ring, which must therefore divide 2^32.
TEST(ShmMessages, HaveRingsWhoseCountersMayWrapAround) {
  for (int size = 1; size <= kMaxRanks; ++size) {
    const std::size_t ring = Control(nullptr, size, 0).ring_bytes();
    EXPECT_TRUE(std::has_single_bit(ring)) << ring << " bytes for " << size << " ranks";
    EXPECT_GE(ring, std::size_t{16} << 10) << size << " ranks";
    EXPECT_LE(ring, std::size_t{512} << 10) << size << " ranks";
    EXPECT_EQ(Control::bytes(size, 0) % kPage, 0U) << size << " ranks";
  }
  EXPECT_TRUE(std::has_single_bit(kRing));
  constexpr std::uint32_t kLast = ~std::uint32_t{0};
  EXPECT_EQ(counter_difference(kLast + 3, kLast), 3);
  EXPECT_EQ(counter_difference(kLast, kLast + 3), -3);
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

// How a message is sent to a receive of four float32 whose fingerprint is 7.
struct Mismatch {
  detail::DataType sent;
  std::uint64_t sent_count;
  std::uint32_t sent_fingerprint;
  const char* text;
};

// The bytes are as many on both sides, whether the message was put aside or not.
TEST(ShmMessages, OfTwoTypesOrCollectivesEndTheGroup) {
  using detail::DataType;
  const Mismatch mismatches[] = {
      {DataType::kInt32, 4, 7,
       "point-to-point mismatch: rank 3 sent 4 of int32 to rank 5, which receives 4 of float32"},
      {DataType::kFloat64, 2, 7,
       "point-to-point mismatch: rank 3 sent 2 of float64 to rank 5, which receives 4 of float32"},
      {DataType::kFloat32, 4, 8,
       "rank 3 and rank 5 exchange messages of collectives that are not the same"},
      {DataType::kFloat32, 4, 7, "nothing was thrown"},
  };
  for (const Mismatch& each : mismatches) {
    for (const bool put_aside : {false, true}) {
      const ShmGroup group(2, {.world_ranks = {3, 5}});
      const std::vector engines = {group.engine(0), group.engine(1)};
      Bytes sent(16, std::byte{1}), got(16), other(8);
      const auto error = message_of<CommError>([&] {
        std::shared_ptr<Transfer> transfer;
        const auto receive_it = [&] {
          transfer = engines[1]->post(
              {.kind = CallKind::kRecv, .type = DataType::kFloat32, .root = 0, .count = 4}, 1,
              got.data(), nullptr, 7);
        };
        if (!put_aside) receive_it();
        engines[0]->post(
            {.kind = CallKind::kSend, .type = each.sent, .root = 1, .count = each.sent_count}, 1,
            sent.data(), nullptr, each.sent_fingerprint);
        if (put_aside) {
          send(*engines[0], other, 1, 2);
          engines[1]->wait(*receive(*engines[1], other, 0, 2), kTimeout);
          receive_it();
        }
        engines[1]->wait(*transfer, kTimeout);
      });
      EXPECT_THAT(error, HasSubstr(each.text)) << put_aside;
    }
  }
}

// A receive from any rank depends on its sender alone once it has begun.
TEST(ShmMessages, FromAnySourceDependOnTheSenderOnceTheyHaveBegun) {
  const ShmGroup group(3);
  const auto receiver = group.engine(0);
  auto sender = group.engine(1), other = group.engine(2);
  const std::size_t size = 2 * Control(nullptr, 3, 0).ring_bytes();
  Bytes sent(size), got(size);
  send(*sender, sent, 0);
  const auto transfer = receive(*receiver, got, kAnySource);
  EXPECT_EQ(transfer->source, 1);
  EXPECT_FALSE(receiver->test(*transfer));
  sender = nullptr;
  EXPECT_EQ(
      message_of<CommError>([&] { receiver->wait(*transfer, kTimeout); }),
      str("rank 1 left the group while rank 0 was in recv[bytes, ", size, ", from any rank]"));
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
