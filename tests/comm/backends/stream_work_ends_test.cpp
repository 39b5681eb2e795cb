// What ends a group whose operations continue in a stream after wait(), and what its members are
// told: failures, dead peers and deadlines. The library and its device are simulated.
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/comm/backends/nccl/device_queries.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/stream_rank.h>

namespace lockstep::comm {
namespace {

using c10d_adapter::AdapterOptions;
using nccl::DeviceQueries;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing_support::comes_true;
using testing_support::LivePeer;
using testing_support::StreamRank;
using testing_support::write_status_of;

// --- Failures ------------------------------------------------------------------------------------

TEST(StreamWorkFailure, OfAnOperationThatNobodyWaitsForEndsTheGroup) {
  StreamRank rank;
  const LivePeer peer(rank);
  rank.start()->wait();
  rank.library->work(0)->fail(
      "NCCL error: remote process exited or there was a network error, NCCL version 2.28.9\n"
      "ncclRemoteError: A call failed possibly due to a network error.\n"
      "Last error:\nsocketProgress: Connection closed by remote peer host<4711>");
  EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
  EXPECT_THAT(
      rank.end(),
      AllOf(HasSubstr("rank 0: all_reduce[float32, 4] (operation 0) over nccl failed: "),
            HasSubstr("remote process exited or there was a network error"),
            HasSubstr("last error: socketProgress: Connection closed by remote peer host")));
  EXPECT_TRUE(comes_true([&] { return rank.library->aborted.load(); }));
  EXPECT_THROW(rank.start(), CommError);
}

TEST(StreamWorkFailure, OfTheDeviceItselfEndsTheGroup) {
  StreamRank rank;
  const LivePeer peer(rank);
  const auto work = rank.start();
  rank.library->work(0)->fail_queries("CUDA error: an illegal memory access was encountered");
  EXPECT_THROW(work->wait(seconds(60)), CommError);
  EXPECT_THAT(rank.end(), HasSubstr("failed: CUDA error: an illegal memory access"));
}

TEST(StreamWorkFailure, OfAnOperationIsAlsoTheEndOfThoseBehindIt) {
  StreamRank rank;
  const LivePeer peer(rank);
  const auto first = rank.start();
  const auto second = rank.start();
  rank.library->work(0)->fail("NCCL error: remote process exited");
  rank.library->work(1)->end();
  EXPECT_THROW(second->wait(seconds(60)), CommError);
}

TEST(StreamWorkFailure, OfAStartTellsTheCause) {
  StreamRank rank;
  const LivePeer peer(rank);
  rank.library->refuse(
      "NCCL error in: /build/NCCLUtils.cpp:94, invalid usage, NCCL version 2.28.9\n"
      "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
      "Last error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device");
  EXPECT_THROW(rank.start(), CommError);
  EXPECT_THAT(rank.end(), HasSubstr("NCCL error: invalid usage, NCCL version 2.28.9; last error: "
                                    "Duplicate GPU detected : rank 0 and rank 1"));
}

TEST(StreamWorkDeath, IsNamedTogetherWithWhatTheLibrarySays) {
  StreamRank rank;
  write_status_of(*rank.store, 1, "7 3 0 0 -1 last completed barrier (operation 3)");
  rank.start()->wait();
  rank.library->work(0)->fail("NCCL error: remote process exited\nLast error:\nno route to host");
  EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
  EXPECT_THAT(rank.end(),
              AllOf(StartsWith("CommError: rank 1 died (no sign of life for "),
                    HasSubstr("nccl: NCCL error: remote process exited; last error: no route")));
}

TEST(StreamWorkDeath, OfASilentPeerIsNamed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  write_status_of(*store, 1, "7 3 0 0 -1 last completed barrier (operation 3)");
  StreamRank rank(0, {.host_timeout = seconds(1)}, store);
  rank.start()->wait();
  EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
  EXPECT_THAT(rank.end(),
              AllOf(StartsWith("CommError: rank 1 died or is stopped (no sign of life for "),
                    HasSubstr(" while rank 0 was in all_reduce[float32, 4] (operation 0)")));
  EXPECT_TRUE(comes_true([&] { return rank.library->aborted.load(); }));
}

TEST(StreamWorkDeath, NobodyIsDeadWhoSaysThatItLives) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  StreamRank rank(0, {.host_timeout = seconds(2)}, store);
  StreamRank peer(1, {.host_timeout = seconds(2)}, store);
  const auto start = Clock::now();
  rank.start()->wait();
  EXPECT_TRUE(comes_true([&] { return seconds_since(start) > 3 || !rank.end().empty(); }));
  EXPECT_EQ(rank.end(), "");
  rank.library->work(0)->end();
}

// A store that answers until `mute` is set.
class MuteStore final : public c10d::HashStore {
 public:
  using c10d::HashStore::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    if (mute) {
      released.wait();
      return;
    }
    c10d::HashStore::set(key, value);
  }
  std::atomic<bool> mute = false;
  std::latch released{1};
};

TEST(StreamWorkDeath, OfTheStoreThatDoesNotAnswerIsNamed) {
  const auto store = c10::make_intrusive<MuteStore>();
  {
    StreamRank rank(1, {.host_timeout = seconds(1)}, store);
    store->mute = true;
    rank.start()->wait();
    EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
    EXPECT_THAT(
        rank.end(),
        AllOf(StartsWith("CommError: rank 0 died or is stopped (its store has not answered for "),
              HasSubstr(" while rank 1 was in all_reduce[float32, 4] (operation 0)")));
    EXPECT_TRUE(comes_true([&] { return rank.library->aborted.load(); }));
  }
  store->released.count_down();
}

TEST(StreamWorkDeath, APeerThatLeftWithoutTheOperationIsNamed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  write_status_of(*store, 1, "7 -1 0 1 -1 has called nothing yet");
  StreamRank rank(0, {}, store);
  rank.start()->wait();
  EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
  EXPECT_EQ(rank.end(),
            "CommError: rank 1 left the group while rank 0 was in "
            "all_reduce[float32, 4] (operation 0)");
}

TEST(StreamWorkDeath, OfTheStoreDoesNotEndAMessageThatDoesNotNeedItsRank) {
  const auto store = c10::make_intrusive<MuteStore>();
  {
    StreamRank rank(1, {.host_timeout = seconds(1)}, store, 3);
    store->mute = true;
    const auto start = Clock::now();
    rank.recv(2)->wait();
    EXPECT_TRUE(comes_true([&] { return seconds_since(start) > 3 || !rank.end().empty(); }));
    EXPECT_EQ(rank.end(), "");
  }
  store->released.count_down();
}

TEST(StreamWorkDeath, OfTheStoreEndsABatchThatNeedsItsRank) {
  const auto store = c10::make_intrusive<MuteStore>();
  {
    StreamRank rank(1, {.host_timeout = seconds(1)}, store, 3);
    store->mute = true;
    rank.caller.backend->batch(
        {{CallKind::kRecv, torch::ones({4}), 2, 0}, {CallKind::kRecv, torch::ones({4}), 0, 0}});
    EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
    EXPECT_THAT(rank.end(), StartsWith("CommError: rank 0 died or is stopped (its store has not "));
  }
  store->released.count_down();
}

TEST(StreamWorkDeath, APeerThatLeftWithoutItsMessageIsNamed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  write_status_of(*store, 1, "7 -1 0 1 -1 has called nothing yet");
  StreamRank rank(0, {.host_timeout = seconds(1)}, store);
  rank.recv(1)->wait();
  EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
  EXPECT_EQ(rank.end(),
            "CommError: rank 1 left the group while rank 0 was in recv[float32, 4, from rank 1]");
}

TEST(StreamWorkDeadline, EndsWhatNobodyWaitsFor) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const Watchdog peer(store, 1, 2, {.beat = milliseconds(20)});
  StreamRank rank(0, {.timeout = seconds(1)}, store);
  rank.start()->wait();
  EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
  EXPECT_THAT(rank.end(),
              AllOf(StartsWith("TimeoutError: rank 0 waited 1 s in all_reduce[float32, 4] "
                               "(operation 0) over nccl for rank 1"),
                    HasSubstr("rank 1 has called nothing yet")));
  EXPECT_TRUE(comes_true([&] { return rank.library->aborted.load(); }));
}

TEST(StreamWorkDeadline, OfAnOperationBeginsWhenThoseBeforeItHaveEnded) {
  StreamRank rank(0, {.timeout = seconds(2)});
  rank.start()->wait();
  rank.start()->wait();
  const auto start = Clock::now();
  EXPECT_TRUE(comes_true([&] { return seconds_since(start) > 1; }));
  rank.library->work(0)->end();
  const auto ended = Clock::now();
  EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
  EXPECT_GE(seconds_since(ended), 2);
  EXPECT_THAT(rank.end(), HasSubstr("(operation 1)"));
}

// Simulates a lock of the driver that blocks each query.
struct HeldUpDevice final : DeviceQueries {
  bool has_ended(c10d::Work& work) override {
    released.wait();
    return work.isCompleted();
  }
  std::latch released{1};
};

TEST(StreamWorkDeadline, DoesNotEndWhatHasEndedWhileTheQuestionIsHeldUp) {
  const auto device = std::make_shared<HeldUpDevice>();
  StreamRank rank({.timeout = seconds(1), .host_timeout = seconds(60)}, device);
  const LivePeer peer(rank);
  const auto work = rank.start();
  work->wait();
  const auto start = Clock::now();
  EXPECT_TRUE(comes_true([&] { return seconds_since(start) > 3 || !rank.end().empty(); }));
  rank.library->work(0)->end();
  device->released.count_down();
  EXPECT_TRUE(work->is_completed());
  EXPECT_EQ(rank.end(), "");
}

TEST(StreamWorkDeadline, EndsWhatADeviceThatDoesNotAnswerHolds) {
  const auto device = std::make_shared<HeldUpDevice>();
  StreamRank rank({.timeout = seconds(1), .host_timeout = seconds(1)}, device);
  const LivePeer peer(rank);
  rank.start()->wait();
  EXPECT_TRUE(comes_true([&] { return !rank.end().empty(); }));
  EXPECT_THAT(rank.end(), StartsWith("TimeoutError: rank 0 waited 1 s in all_reduce"));
  device->released.count_down();
}

// --- Operations left when a group is destroyed ---------------------------------------------------

// The error of an operation that is still under way when its group is destroyed; null for success.
std::exception_ptr end_of_what_is_left(std::unique_ptr<StreamRank> rank) {
  std::promise<std::exception_ptr> end;
  {
    const auto work = rank->start();
    dynamic_cast<StreamOrdered&>(*work).on_end(
        [&](const std::exception_ptr& error) { end.set_value(error); });
  }
  rank.reset();
  auto future = end.get_future();
  if (future.wait_for(seconds(60)) != std::future_status::ready) {
    return std::make_exception_ptr(Error("nobody was told"));
  }
  return future.get();
}

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const CommError& caught) {
    return caught.what();
  } catch (const std::exception& caught) {
    return str("no CommError: ", caught.what());
  }
}

TEST(StreamWorkFailure, OfAGroupThatEndsWhileItGoesIsThatOfWhatIsLeft) {
  Watchdog* watchdog = nullptr;
  auto rank = std::make_unique<StreamRank>(
      0, AdapterOptions{.forget_keys = [&] { watchdog->abort("enough"); }});
  watchdog = rank->caller.backend->watchdog();
  const auto library = rank->library;
  EXPECT_EQ(text_of(end_of_what_is_left(std::move(rank))), "enough");
  EXPECT_TRUE(comes_true([&] { return library->aborted.load(); }));
}

TEST(StreamWorkFailure, OfTheShutdownIsThatOfWhatIsLeft) {
  auto rank = std::make_unique<StreamRank>();
  rank->library->shutdown_failure = "NCCL error: remote process exited";
  EXPECT_EQ(
      text_of(end_of_what_is_left(std::move(rank))),
      "rank 0: all_reduce[float32, 4] (operation 0) over nccl was under way when this rank left "
      "the group, which failed: NCCL error: remote process exited");
}

}  // namespace
}  // namespace lockstep::comm
