// The parts of the adapter to Gloo: the tags of its own messages, the threads that wait, what a
// group leaves in the store, and an all-to-all of uneven pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/gloo/message_slot.h>
#include <lockstep/comm/backends/gloo/waiters.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/gloo_groups.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep::comm {
namespace {

using gloo::OwnMessage;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// No two of these calls have the same fingerprint once it is folded into the bits of a tag.
TEST(GlooParts, TellTheMessagesOfTheirCollectivesApart) {
  const std::uint32_t prints[] = {0, 1, 1U << 16, 1U << 18, 1U << 31, 0x1ffff};
  std::set<int> tags;
  for (const OwnMessage kind : {OwnMessage::kSchedule, OwnMessage::kSize, OwnMessage::kPiece}) {
    for (const std::uint64_t number : {0, 1, 1024, 2047}) {
      for (const std::uint32_t print : prints) {
        const auto slot = gloo::own_slot(kind, number, print, 1001);
        EXPECT_GE(slot.tag, 1 << 30) << "a message of the user";
        EXPECT_LT(slot.tag, std::numeric_limits<int>::max()) << "a probe of a connection";
        EXPECT_EQ(slot.bytes, 1001U);
        EXPECT_FALSE(slot.padded);
        EXPECT_TRUE(tags.insert(slot.tag).second) << number << ' ' << print;
      }
    }
  }
  EXPECT_EQ(gloo::own_slot(OwnMessage::kSize, 2048, 7, 8).tag,
            gloo::own_slot(OwnMessage::kSize, 0, 7, 8).tag);
}

TEST(GlooParts, TellCollectivesOfTheLibraryApart) {
  const std::uint32_t prints[] = {0, 1, 1U << 15, 1U << 17, 1U << 30, 0xffff};
  std::set<std::uint32_t> tags;
  for (const std::uint64_t number : {0, 1, 32768, 65535}) {
    for (const std::uint32_t print : prints) {
      EXPECT_TRUE(tags.insert(gloo::collective_tag(number, print)).second)
          << number << ' ' << print;
    }
  }
  EXPECT_EQ(gloo::collective_tag(65536, 7), gloo::collective_tag(0, 7));
}

TEST(GlooParts, RunEveryJobInAThreadThatWaits) {
  std::latch both(2);
  std::atomic<int> ended = 0;
  gloo::Waiters waiters;
  for (int job = 0; job < 2; ++job) {
    waiters.run([&] {
      both.arrive_and_wait();  // each needs a thread of its own
      ++ended;
    });
  }
  waiters.join();
  EXPECT_EQ(ended, 2);
  {
    gloo::Waiters others;
    for (int job = 0; job < 3; ++job) others.run([&] { ++ended; });
  }
  EXPECT_EQ(ended, 5) << "also those that had not begun";
}

// A thread without a job may wait for the next one for hours.
TEST(GlooParts, HoldNothingOfAJobThatHasEnded) {
  gloo::Waiters waiters;
  auto memory = std::make_shared<int>();
  const std::weak_ptr<int> held = memory;
  waiters.run([memory] {});
  memory.reset();
  const Deadline deadline(std::chrono::seconds(30));
  while (!held.expired() && !deadline.expired()) std::this_thread::yield();
  EXPECT_TRUE(held.expired());
}

TEST(GlooParts, LeaveNoKeysOnceAllRanksHaveLeft) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = testing_support::run_threads(3, [&](int rank) {
    testing_support::Caller caller(
        testing_support::connect_gloo(store, "group", rank, 3, std::chrono::seconds(30)), rank, 3);
    caller.barrier();
  });
  EXPECT_EQ(errors, testing_support::no_errors(3));
  EXPECT_EQ(store->getNumKeys(), 0);
}

using PieceSizes = std::vector<std::int64_t>;

// A rank may ask for the end of the exchange instead of waiting for it.
TEST(GlooParts, ExchangeUnevenPiecesWhileTheirRankAsks) {
  std::latch seen(2);
  const auto errors = testing_support::run_group(2, "gloo", [&](ProcessGroup group) {
    const bool first = group.rank() == 0;
    const auto is_over = [](const WorkPtr& work) {
      const Deadline deadline(std::chrono::seconds(20));
      while (!work->is_completed() && !deadline.expired()) std::this_thread::yield();
      return work->is_completed();
    };
    const PieceSizes given = first ? PieceSizes{1, 2} : PieceSizes{0, 1};
    const PieceSizes taken = first ? PieceSizes{1, 0} : PieceSizes{2, 1};
    auto output = torch::zeros({first ? 1 : 3});
    const auto input = torch::arange(3).slice(0, first ? 0 : 2).to(torch::kFloat32) + 1;
    const auto right = group.async_all_to_all_single(output, input, taken, given);
    EXPECT_TRUE(is_over(right));
    EXPECT_EQ(right->error(), nullptr);
    EXPECT_TRUE(output.equal(first ? torch::ones({1}) : torch::tensor({2.0F, 3.0F, 3.0F})));
    // Now rank 0 gives rank 1 an element less than that expects.
    const auto wrong = group.async_all_to_all_single(output, first ? torch::ones({2}) : input,
                                                     taken, first ? PieceSizes{1, 1} : given);
    EXPECT_TRUE(is_over(wrong));
    if (!first) {
      EXPECT_NE(wrong->error(), nullptr);
      EXPECT_THAT(testing_support::message_of<CommError>([&] { wrong->wait(); }),
                  StartsWith("rank 0 gives rank 1 1 elements in all_to_all[float32, with splits] "
                             "(operation 1), which expects 2"));
    }
    seen.arrive_and_wait();
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
}

TEST(GlooParts, EndAnExchangeOfUnevenPiecesAtItsDeadline) {
  std::latch seen(2);
  const auto errors = testing_support::run_group(2, "gloo", [&](ProcessGroup group) {
    if (group.rank() == 0) {
      const auto ones = torch::ones({2});
      const auto work = group.async_all_to_all_single(torch::zeros({2}), ones, {1, 1}, {1, 1});
      const auto start = Clock::now();
      EXPECT_THAT(testing_support::message_of<TimeoutError>(
                      [&] { work->wait(std::chrono::milliseconds(200)); }),
                  AllOf(StartsWith("rank 0 waited 0."),
                        HasSubstr(" s in all_to_all[float32, with splits] (operation 0) over gloo "
                                  "for rank 1; rank 1 has called nothing yet")));
      EXPECT_LT(seconds_since(start), 15) << "the group's timeout is 30 s";
      EXPECT_TRUE(work->is_completed());
      EXPECT_NE(work->error(), nullptr);
    }
    seen.arrive_and_wait();
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
}

}  // namespace
}  // namespace lockstep::comm
