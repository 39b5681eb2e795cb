// Waits over Gloo: progress of other operations during a wait, errors that end a wait, and messages
// whose sizes differ on the two sides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <exception>
#include <latch>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/gloo/gloo_backend.h>
#include <lockstep/comm/backends/gloo/message_slot.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/comm/group/connect.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/gloo/told_library.h>
#include <tests/comm/backends/gloo_groups.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/support/moment.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using namespace testing_support;

// --- Progress during a wait ----------------------------------------------------------------------

class SchedulesInFlight : public testing::TestWithParam<std::tuple<std::string, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, SchedulesInFlight,
                         testing::Combine(testing::Values("gloo", "shm", "hierarchical"),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "InTwoGroups" : "InOneGroup");
                         });

TEST_P(SchedulesInFlight, AreWaitedForInAnyOrder) {
  const auto errors = run_group(4, std::get<0>(GetParam()), [](ProcessGroup world) {
    auto other = std::get<1>(GetParam()) ? *world.new_group({0, 1, 2, 3}) : world;
    for (int i = 0; i < 4; ++i) {
      std::vector<torch::Tensor> tensors;
      std::vector<WorkPtr> works;
      for (const auto algorithm : {Algorithm::kRing, Algorithm::kTree, Algorithm::kRing}) {
        tensors.push_back(torch::full({20'001}, world.rank() + 1));
        auto& group = works.size() % 2 == 0 ? world : other;
        works.push_back(group.async_all_reduce(tensors.back(), ReduceOp::kSum, algorithm));
      }
      if ((world.rank() + i) % 2 == 1) std::reverse(works.begin(), works.end());
      for (const auto& work : works) work->wait();
      for (const auto& tensor : tensors) {
        if (!torch::equal(tensor, torch::full({20'001}, 10))) throw Error("wrong sum");
      }
    }
    world.barrier();
  });
  EXPECT_EQ(errors, no_errors(4));
}

enum class GlooWait { kCollective, kReceive, kSchedule };

class SharedMemoryMoves : public testing::TestWithParam<GlooWait> {};
INSTANTIATE_TEST_SUITE_P(While, SharedMemoryMoves,
                         testing::Values(GlooWait::kCollective, GlooWait::kReceive,
                                         GlooWait::kSchedule));

// Rank 1 has started its part of a long sum and waits for rank 0 in another group, over Gloo. Rank
// 0 enters that group's call only after the sum.
TEST_P(SharedMemoryMoves, WhileARankWaitsOverGloo) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(2, [&](int rank) {
    const auto part = [&](const char* backend) {
      return join_store(c10::make_intrusive<c10d::PrefixStore>(backend, store), rank, 2,
                        {.backend = backend, .timeout = seconds(30)});
    };
    auto shm = part("shm");
    auto gloo = part("gloo");
    auto sum = torch::ones({8 << 20});
    auto small = torch::ones({4});
    const auto meet = [&] {
      if (GetParam() == GlooWait::kCollective) return gloo.barrier();
      if (GetParam() == GlooWait::kSchedule) {
        return gloo.all_reduce(small, ReduceOp::kSum, Algorithm::kRing);
      }
      if (rank == 0) return gloo.send(small, 1);
      gloo.recv(small, 0);
    };
    auto work = shm.async_all_reduce(sum);
    if (rank == 0) work->wait();
    meet();
    work->wait();
    if (!torch::equal(sum, torch::full({8 << 20}, 2.0F))) throw Error("wrong sum");
    shm.barrier();
    gloo.barrier();
  });
  EXPECT_EQ(errors, no_errors(2));
}

// --- Errors that end a wait ----------------------------------------------------------------------

// Blocks one thread when it is about to publish its address for Gloo's peers.
class HeldStore final : public c10d::HashStore {
 public:
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    if (is_held && key.find("group/") != std::string::npos &&
        key.find("gloo") != std::string::npos) {
      held.count_down();
      released.wait();
      is_held = false;
    }
    HashStore::set(key, value);
  }

  static thread_local bool is_held;
  std::latch held{1};
  std::latch released{1};
};
thread_local bool HeldStore::is_held = false;

TEST(GlooConnect, EndsWithTheGroupThatTheNewOneIsMadeFrom) {
  auto store = c10::make_intrusive<HeldStore>();
  const auto errors = run_threads(2, [&](int rank) {
    auto world = join_store(store, rank, 2, {.backend = "gloo", .timeout = seconds(30)});
    std::thread aborting;
    if (rank == 1) {
      HeldStore::is_held = true;
      aborting = std::thread([&] {
        store->held.wait();
        world.abort("enough");
      });
    }
    const auto start = Clock::now();
    std::string text;
    try {
      world.new_group({0, 1});
    } catch (const CommError& error) {
      text = error.what();
    }
    if (rank == 0) store->released.count_down();
    if (aborting.joinable()) aborting.join();
    if (seconds_since(start) > 10) throw Error("late");
    throw Error(text);
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 0: cannot connect the ranks over Gloo on "),
                               HasSubstr("rank 1 ended the group: enough")));
  EXPECT_THAT(errors[1], HasSubstr("enough"));
}

TEST(GlooConnect, LeavesNoKeysWhereARankCannot) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(2, [&](int rank) {
    WorkerEnvironment environment;
    environment.rank = rank;
    environment.world_size = 2;
    gloo::connect(store, environment, rank == 0 ? "127.0.0.1" : "no address", torch::kCPU,
                  milliseconds(300), {3, 7});
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 3: cannot connect the ranks over Gloo on 127.0.0.1: "));
  EXPECT_THAT(errors[1], HasSubstr("rank 7: cannot connect the ranks over Gloo on no address: "));
  EXPECT_EQ(store->getNumKeys(), 0);
}

struct Fault {
  const char* name;
  const char* backend;
  int signal;
};

class ScheduleFaults : public testing::TestWithParam<Fault> {};
INSTANTIATE_TEST_SUITE_P(All, ScheduleFaults,
                         testing::Values(Fault{"DeathOverGloo", "gloo", SIGKILL},
                                         Fault{"DeathOverShm", "shm", SIGKILL},
                                         Fault{"StopOverGloo", "gloo", SIGSTOP},
                                         Fault{"StopOverShm", "shm", SIGSTOP}),
                         [](const auto& info) { return info.param.name; });

// Most ranks have no messages with rank 2, only with their neighbours in the ring.
TEST_P(ScheduleFaults, AreNamedByEveryRankOfTheRing) {
  constexpr int kRanks = 5;
  constexpr int kVictim = 2;
  const bool stops = GetParam().signal == SIGSTOP;
  Moment moment;
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = run_processes(
      kRanks,
      [&](int rank) {
        auto group = init_process_group({.backend = GetParam().backend,
                                         .timeout = stops ? seconds(2) : seconds(30),
                                         .host_timeout = milliseconds(500),
                                         .environment = environment_of(rank, kRanks, fd)});
        auto tensor = torch::ones({100'000});
        try {  // a slow rank may still be in the first call when the victim ends it
          group.all_reduce(tensor, ReduceOp::kAverage, Algorithm::kRing);
          auto work = group.async_all_reduce(tensor, ReduceOp::kAverage, Algorithm::kRing);
          if (rank == kVictim) {
            moment.mark();
            raise(GetParam().signal);
          }
          work->wait();
          throw Error("it ended well");
        } catch (const TimeoutError& error) {
          throw Error(str("TimeoutError: ", error.what()));
        } catch (const CommError& error) {
          const char* when = moment.seconds_ago() < 2 ? " in time" : " late";
          throw Error(str("CommError: ", error.what(), when));
        }
      },
      stops ? seconds(6) : seconds(20));
  close(fd);
  const std::string victim = str("rank ", kVictim);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kVictim) continue;
    const auto& error = errors[static_cast<std::size_t>(rank)];
    if (stops) {
      EXPECT_THAT(error, AllOf(HasSubstr("TimeoutError: "), HasSubstr(" for " + victim),
                               HasSubstr("all_reduce[float32, 100000")));
    } else {
      EXPECT_THAT(error, AllOf(HasSubstr("CommError: "), HasSubstr(victim), HasSubstr(" died"),
                               HasSubstr(" in time")));
    }
  }
}

// Rank 0, which serves the store, has exited normally long before.
TEST(GlooDeath, IsNamedWithoutTheStore) {
  Moment killed;
  const auto errors = run_gloo_processes(
      3,
      [&](Caller& caller) {
        caller.barrier();
        if (caller.rank == 0) return;
        auto tensor = torch::ones({4});
        auto& watchdog = *caller.backend->watchdog();
        while (watchdog.store_trouble().empty()) watchdog.wait_for_news(milliseconds(100));
        if (caller.rank == 2) {
          caller.backend->send(tensor, 1, 0)->wait();
          killed.mark();
          raise(SIGKILL);
        }
        caller.backend->recv(tensor, 2, 0)->wait();
        try {
          caller.backend->recv(tensor, 2, 0)->wait();
        } catch (const CommError& error) {
          throw CommError(str(error.what(), killed.seconds_ago() < 2 ? " in time" : " late"));
        }
      },
      seconds(30), seconds(10));
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 2 died or left the group ("),
                               HasSubstr(" while rank 1 was in recv["), HasSubstr(" in time")));
}

// The message has arrived, and its sender has left, long before this rank waits for it.
TEST(Gloo, AMessageThatHasComeOutlivesItsSender) {
  const auto errors = run_gloo_processes(
      2,
      [](Caller& caller) {
        auto tensor = torch::full({4}, caller.rank);
        if (caller.rank == 1) return caller.backend->send(tensor, 0, 0)->wait();
        const auto message = caller.backend->recv(tensor, 1, 0);
        std::this_thread::sleep_for(seconds(2));  // beyond the watchdog's grace
        message->wait();
        if (!torch::equal(tensor, torch::ones({4}))) throw Error("not what was sent");
      },
      seconds(30), seconds(10));
  EXPECT_EQ(errors, no_errors(2));
}

// Gloo's own timeout expires first, but its error does not say which rank was late or what it did.
TEST(GlooDeadline, AWaitThatBeginsLateIsAlsoTold) {
  const auto errors = run_gloo_processes(
      2,
      [](Caller& caller) {
        if (caller.rank == 1) return std::this_thread::sleep_for(seconds(3));
        auto tensor = torch::ones({4});
        const auto work = caller.start(CallKind::kAllReduce, {}, tensor);
        std::this_thread::sleep_for(milliseconds(600));
        try {
          work->wait();
        } catch (const TimeoutError& error) {
          throw Error(str("a timeout: ", error.what()));
        }
      },
      seconds(1), seconds(10));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("a timeout: rank 0 waited 1 s in all_reduce[float32, 4]"),
                               HasSubstr(" for rank 1; rank 1 ")));
}

// No reason is sought for a timeout. It is that of the group, however long the wait was to be.
TEST(GlooDeadline, ATimeoutOfTheLibraryIsToldAtOnce) {
  for (const bool polls : {false, true}) {
    ToldCaller rank;
    const auto work = rank.start_sum(torch::ones({4}));
    EXPECT_FALSE(work->is_completed());
    EXPECT_EQ(work->error(), nullptr);
    rank.library->sum->end(std::make_exception_ptr(std::runtime_error(
        "[/build/gloo/unbound_buffer.cc:83] Timed out waiting 30000ms for recv operation")));
    EXPECT_EQ(work->error(), nullptr) << "only a call finds out";
    if (polls) {
      EXPECT_TRUE(work->is_completed());
    }
    const std::string text = message_of<TimeoutError>([&] { work->wait(seconds(7)); });
    EXPECT_THAT(text,
                testing::StartsWith("rank 0 waited 30 s in all_reduce[float32, 4] (operation 0) "
                                    "over gloo for rank 1; rank 1 has called nothing yet"));
    EXPECT_EQ(message_of<TimeoutError>([&] { work->wait(); }), text) << "the second time";
    EXPECT_NE(work->error(), nullptr);
    EXPECT_TRUE(work->is_completed());
    EXPECT_EQ(message_of<TimeoutError>([&] { rank.caller.backend->check(); }), text);
  }
}

// The connection to a rank that ended the group is closed before its reason arrives.
TEST(Gloo, AFailureOfTheLibraryWaitsForItsReason) {
  for (const bool polls : {false, true}) {
    ToldCaller rank;
    Watchdog peer(rank.store, 1, 2, {.store_rank = -1});
    const auto work = rank.start_sum(torch::ones({4}));
    rank.library->sum->end(std::make_exception_ptr(
        std::runtime_error("[/build/gloo/pair.cc:534] Connection closed by peer")));
    if (polls) {
      EXPECT_FALSE(work->is_completed());
    }
    EXPECT_EQ(work->error(), nullptr);
    peer.abort("the loss is infinite");
    EXPECT_EQ(message_of<CommError>([&] { work->wait(); }),
              "rank 1 ended the group: the loss is infinite");
    EXPECT_NE(work->error(), nullptr);
    EXPECT_TRUE(work->is_completed());
  }
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(Gloo, AWaitForAReasonLeavesTheProcessorToOthers) {
  ToldCaller rank;
  const auto work = rank.start_sum(torch::ones({4}));
  rank.library->sum->end(std::make_exception_ptr(
      std::runtime_error("[/build/gloo/pair.cc:534] Connection closed by peer")));
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(50));
    rank.caller.backend->abort("the loss is infinite");
  });
  const double before = processor_seconds();
  EXPECT_EQ(message_of<CommError>([&] { work->wait(); }), "the loss is infinite");
  EXPECT_LT(processor_seconds() - before, 0.025);
  other.join();
}

// A program may keep the Work for longer than the sum takes.
TEST(Gloo, ASumThatHasEndedHoldsNoTensor) {
  for (const bool polls : {false, true}) {
    ToldCaller rank;
    const auto tensor = torch::ones({4});
    const auto work = rank.start_sum(tensor);
    EXPECT_GT(tensor.storage().use_count(), 1U);
    rank.library->sum->end();
    if (polls) {
      EXPECT_TRUE(work->is_completed());
    } else {
      work->wait();
    }
    EXPECT_EQ(tensor.storage().use_count(), 1U);
    EXPECT_EQ(work->error(), nullptr);
    EXPECT_EQ(work->source_rank(), -1);
    work->wait();
    EXPECT_TRUE(work->is_completed());
  }
}

// Nobody can wait for it any more.
TEST(Gloo, ADroppedSumIsNoCallUnderWay) {
  ToldCaller rank;
  Watchdog peer(rank.store, 1, 2, {.store_rank = -1});
  const auto is_read = [&](const std::string& words) {
    const Deadline deadline(seconds(10));
    while (peer.whereabouts() != words) {
      if (deadline.expired()) return false;
      rank.caller.backend->watchdog()->hurry();
      peer.hurry();
      peer.wait_for_news(milliseconds(100));
    }
    return true;
  };
  auto work = rank.start_sum(torch::ones({4}));
  EXPECT_TRUE(is_read("rank 0 is in all_reduce[float32, 4] (operation 0)"));
  work = nullptr;
  EXPECT_TRUE(is_read("rank 0 last completed all_reduce[float32, 4] (operation 0)"));
  rank.library->sum->end();  // so that the group does not wait for it
}

// A group that forgot a message at the next call would no longer interrupt the waits for it.
TEST(GlooMessage, IsInterruptedAgainAfterALaterCall) {
  ToldCaller rank;
  const auto work = rank.caller.backend->recv(torch::ones({4}), 1, 0);
  const auto message = rank.library->message;
  Watchdog& watchdog = *rank.caller.backend->watchdog();
  const Deadline deadline(seconds(30));
  while (message->interruptions == 0 && !deadline.expired()) {
    watchdog.hurry();
    watchdog.wait_for_news(milliseconds(100));
  }
  ASSERT_GT(message->interruptions, 0);
  ASSERT_TRUE(message->isCompleted());
  const auto sum = rank.start_sum(torch::ones({4}));
  const int before = message->interruptions;
  rank.caller.backend->abort("enough");
  EXPECT_GT(message->interruptions, before);
  EXPECT_EQ(message_of<CommError>([&] { work->wait(); }), "enough");
  rank.library->sum->end();  // so that the group does not wait for it
}

// The watchdog last looked before the call, so its knowledge of the other ranks is older than the
// wait.
TEST(GlooDeadline, AShortDeadlineNamesOnlyWhoIsLate) {
  std::latch over(3);
  const auto errors = run_gloo_threads(4, [&](Caller& caller) {
    caller.barrier();
    auto tensor = torch::ones({4});
    if (caller.rank == 1) return over.wait();
    std::string text;
    try {
      caller.start(CallKind::kAllReduce, {}, tensor)->wait(milliseconds(600));
    } catch (const TimeoutError& error) {
      text = error.what();
    }
    over.arrive_and_wait();
    throw Error(text);
  });
  for (const int rank : {0, 2, 3}) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr(" for rank 1; "));
  }
}

TEST(GlooDeadline, AReceiveWithADeadlineWaitsNoLonger) {
  std::latch over(2);
  const auto errors = run_gloo_threads(2, [&](Caller& caller) {
    caller.barrier();
    if (caller.rank == 1) return over.arrive_and_wait();
    auto tensor = torch::ones({4});
    const auto work = caller.backend->recv(tensor, 1, 0);
    const auto start = Clock::now();
    EXPECT_THROW(work->wait(milliseconds(300)), TimeoutError);
    EXPECT_LT(seconds_since(start), 10);  // the timeout of the group is 30 s
    over.arrive_and_wait();
  });
  EXPECT_THAT(errors[0], HasSubstr("waited 0.3 s in recv[float32, 4, from rank 1]"));
}

// --- Messages of another size --------------------------------------------------------------------

struct Sizes {
  std::int64_t sent;
  std::int64_t received;
  const char* text;
};

class SizeMismatch : public testing::TestWithParam<Sizes> {};
INSTANTIATE_TEST_SUITE_P(All, SizeMismatch,
                         testing::Values(Sizes{5, 4, "waited 0.7 s"}, Sizes{4, 5, "waited 0.7 s"},
                                         Sizes{100'000, 1000, "waited 0.7 s"},
                                         Sizes{1, 0, "waited 0.7 s"},
                                         // Both are sent as 4016 bytes.
                                         Sizes{1002, 1001,
                                               "a message of 4008 bytes came, but there is room "
                                               "for 4004; both sides must give the same size"},
                                         Sizes{1001, 1002,
                                               "a message of 4004 bytes came, but there is room "
                                               "for 4008; both sides must give the same size"}));

TEST_P(SizeMismatch, IsAnErrorOfBothRanks) {
  const auto errors = run_gloo_threads(2, [&](Caller& caller) {
    const auto work = caller.rank == 0
                          ? caller.backend->send(torch::ones({GetParam().sent}), 1, 3)
                          : caller.backend->recv(torch::ones({GetParam().received}), 0, 3);
    work->wait(milliseconds(700));
  });
  EXPECT_THAT(errors, Each(HasSubstr(GetParam().text)));
}

TEST(MessageSlot, IsSharedByMessagesOfOneSizeOnly) {
  using gloo::message_slot;
  std::map<int, std::uint64_t> travelling;
  const auto check = [&](std::uint64_t bytes) {
    const auto slot = message_slot(65'535, bytes);
    ASSERT_GE(slot.tag, 0);
    ASSERT_LT(slot.tag, 1 << 30);
    ASSERT_EQ(slot.tag & 0xffff, 65'535);
    ASSERT_GE(slot.bytes, slot.padded ? bytes + 8 : bytes);
    ASSERT_EQ(travelling.emplace(slot.tag, slot.bytes).first->second, slot.bytes) << bytes;
  };
  for (std::uint64_t bytes = 0; bytes < 20'000; ++bytes) check(bytes);
  for (std::uint64_t bytes = 1 << 14; bytes < (std::uint64_t{1} << 50); bytes += bytes / 300 + 1) {
    check(bytes);
    check(bytes & ~((bytes >> 7) - 1));
  }
  EXPECT_FALSE(message_slot(0, std::uint64_t{25} << 20).padded);  // so it is sent without a copy
  EXPECT_EQ(message_slot(0, 4096).bytes, 4096U);
}

TEST(Gloo, RefusesATagThatIsTooLarge) {
  const auto errors = run_gloo_threads(
      2, [](Caller& caller) { caller.backend->send(torch::ones({1}), 1 - caller.rank, 65'536); });
  EXPECT_THAT(errors,
              Each(std::string("send, recv: tags of this backend must be below 65536, got 65536")));
}

}  // namespace
}  // namespace lockstep::comm
