// What becomes of a group if a rank fails while the ranks connect. Ranks are threads, and a double
// stands for NCCL.
#include <lockstep/comm/backends/nccl/connecting.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <lockstep/comm/rendezvous/text_exchange.h>
#include <lockstep/comm/waiting/progress.h>
#include <lockstep/comm/waiting/store_waits.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/ranks.h>

namespace lockstep::comm {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_threads;

constexpr int kMembers = 3;
constexpr std::chrono::seconds kLongTimeout{60};
constexpr double kSoonSeconds = 30;  // on a busy machine; long before the timeout
constexpr const char* kLastTopic = "end of the test";

bool becomes_true(const std::function<bool()>& condition) {
  const Deadline deadline(kLongTimeout);
  while (!condition() && !deadline.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

// Stands for NCCL as LibTorch starts it: rank 0 writes an id into the store, the others read it,
// and all wait inside until each rank is there. Nothing but let_go() ends that wait earlier.
class BlockingLibrary {
 public:
  static void exchange_id(c10d::Store& store, int rank) {
    if (rank == 0) {
      store.set("0", store_bytes("the id"));
    } else if (store_text(store.get("0")) != "the id") {
      throw Error("another id");
    }
  }
  void init_rank() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return arrived_ == kMembers || is_free_; });
    --inside_;
    if (arrived_ < kMembers) throw std::runtime_error("a peer has closed its connection");
  }
  void connect(c10d::Store& store, int rank) {
    exchange_id(store, rank);
    init_rank();
  }

  int inside() {
    const std::scoped_lock lock(mutex_);
    return inside_;
  }
  void await_inside(int ranks) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLongTimeout, [&] { return inside_ == ranks; });
  }
  void let_go() {
    const std::scoped_lock lock(mutex_);
    is_free_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  int arrived_ = 0;
  int inside_ = 0;
  bool is_free_ = false;
};

// A rank's call of the library, which connects it.
using ConnectingCall = std::function<void(int rank, c10d::Store& store)>;

// Connects all ranks as a group does, and returns their errors.
std::vector<std::string> connect_all(const ConnectingCall& call) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  return run_threads(kMembers, [&](int rank) {
    TextExchange exchange(store, rank, kMembers, kLongTimeout);
    exchange.attempt(kLastTopic, [&] {
      nccl::connect_library(
          c10::make_intrusive<c10d::PrefixStore>("nccl", store),
          [call, rank](const c10::intrusive_ptr<c10d::Store>& view) { call(rank, *view); },
          {.progress = nullptr, .check = exchange.refusal_check()}, kLongTimeout);
    });
    exchange.exchange(kLastTopic, "");
  });
}

class ConnectingRanks : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_LT(seconds_since(start_), kSoonSeconds) << "a rank waited until its deadline";
    library_->let_go();
    EXPECT_TRUE(becomes_true([&] { return library_.use_count() == 1; }))
        << "a rank that has given up stays in the store";
  }

  const Clock::time_point start_ = Clock::now();
  const std::shared_ptr<BlockingLibrary> library_ = std::make_shared<BlockingLibrary>();
};

TEST_F(ConnectingRanks, MeetInTheLibrary) {
  const auto errors = connect_all(
      [library = library_](int rank, c10d::Store& store) { library->connect(store, rank); });
  EXPECT_EQ(errors, no_errors(kMembers));
  EXPECT_EQ(library_->inside(), 0);
}

TEST_F(ConnectingRanks, NameTheOneThatWritesNoId) {
  const auto errors = connect_all([library = library_](int rank, c10d::Store& store) {
    if (rank == 0) throw CommError("rank 0: no network interface was found");
    library->connect(store, rank);
  });
  EXPECT_THAT(errors, Each(std::string("rank 0: no network interface was found")));
  EXPECT_EQ(library_->inside(), 0);
}

TEST_F(ConnectingRanks, NameTheOneThatReadsNoId) {
  const auto errors = connect_all([library = library_](int rank, c10d::Store& store) {
    if (rank == 1) {
      library->await_inside(2);
      throw CommError("rank 1: out of memory");
    }
    library->connect(store, rank);
  });
  EXPECT_THAT(errors, Each(std::string("rank 1: out of memory")));
  EXPECT_EQ(library_->inside(), 2) << "the calls of the library cannot be interrupted";
}

// The library does not know the rank's number in the first group.
TEST_F(ConnectingRanks, NameTheOneThatFailsInTheLibrary) {
  const auto errors = connect_all([library = library_](int rank, c10d::Store& store) {
    BlockingLibrary::exchange_id(store, rank);
    if (rank == 1) {
      library->await_inside(2);
      throw std::runtime_error("NCCL error: unhandled cuda error");
    }
    library->init_rank();
  });
  EXPECT_THAT(errors, ElementsAre("rank 1: NCCL error: unhandled cuda error",
                                  "NCCL error: unhandled cuda error",
                                  "rank 1: NCCL error: unhandled cuda error"));
  EXPECT_EQ(library_->inside(), 2) << "the calls of the library cannot be interrupted";
}

TEST_F(ConnectingRanks, GiveUpAtTheirDeadline) {
  EXPECT_EQ(message_of<TimeoutError>([&] {
              nccl::connect_library(
                  c10::make_intrusive<c10d::HashStore>(),
                  [library = library_](const c10::intrusive_ptr<c10d::Store>& view) {
                    library->connect(*view, /*rank=*/1);  // rank 0 does not come
                  },
                  {}, std::chrono::milliseconds(50));
            }),
            "not all ranks connected within 0.05 s");
}

TEST_F(ConnectingRanks, EndWithTheGroupThatTheirsIsSplitFrom) {
  const auto check = [library = library_] {
    if (library->inside() == 1) throw CommError("rank 2 ended the group: enough");
  };
  EXPECT_EQ(message_of<CommError>([&] {
              nccl::await_library([library = library_] { library->init_rank(); },
                                  {.progress = nullptr, .check = check}, kLongTimeout);
            }),
            "rank 2 ended the group: enough");
}

class CountedAdvances final : public Progressing {
 public:
  bool advance() noexcept override {
    ++count;
    return false;
  }
  std::atomic<int> count = 0;
};

TEST_F(ConnectingRanks, AdvanceTheirOtherOperations) {
  const auto operations = std::make_shared<CountedAdvances>();
  const auto progress = std::make_shared<Progress>();
  progress->add(operations);
  nccl::await_library(
      [operations] { EXPECT_TRUE(becomes_true([&] { return operations->count >= 3; })); },
      {.progress = progress, .check = {}}, kLongTimeout);
}

// --- Attempts ------------------------------------------------------------------------------------

TEST(Attempts, TellTheOthersWhatFailed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(2, [&](int rank) {
    TextExchange exchange(store, rank, 2, kLongTimeout, /*world_ranks=*/{4, 7});
    if (rank == 0) throw Error(message_of<CommError>([&] { exchange.exchange(kLastTopic, ""); }));
    throw Error(message_of<ConfigError>(
        [&] { exchange.attempt(kLastTopic, [] { throw ConfigError("there is no such GPU"); }); }));
  });
  EXPECT_THAT(errors, ElementsAre("rank 7: there is no such GPU", "there is no such GPU"));
}

TEST(Attempts, MayFailAlikeOnAllRanks) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = run_threads(2, [&](int rank) {
    TextExchange exchange(store, rank, 2, kLongTimeout);
    exchange.attempt(kLastTopic, [] { throw ConfigError("choose shm"); });
  });
  EXPECT_THAT(errors, Each(std::string("choose shm")));
}

TEST(Attempts, DoNotTellOfADeadline) {
  TextExchange exchange(c10::make_intrusive<c10d::HashStore>(), 0, 2, kLongTimeout);
  EXPECT_EQ(exchange.attempt(kLastTopic, [] { return 7; }), 7);
  EXPECT_THROW(exchange.attempt(kLastTopic, [] { throw TimeoutError("too late"); }), TimeoutError);
  EXPECT_FALSE(exchange.refusal().has_value());
}

}  // namespace
}  // namespace lockstep::comm
