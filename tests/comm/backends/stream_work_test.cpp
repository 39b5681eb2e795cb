// Operations that continue in a stream after wait(), like NCCL's: how and when they are reported as
// completed, also while a graph is captured. The library and its device are simulated.
#include <lockstep/comm/backends/nccl/stream_work.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/comm/backends/nccl/device_queries.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/stream_library.h>
#include <tests/comm/backends/stream_rank.h>

namespace lockstep::comm {
namespace {

using nccl::DeviceQueries;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing_support::CapturedDevice;
using testing_support::comes_true;
using testing_support::StreamRank;

// --- Tickets -------------------------------------------------------------------------------------

TEST(StreamWork, IsWhatTheRankIsInUntilTheDeviceHasEndedIt) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  StreamRank rank(0, {}, store);
  const Watchdog peer(store, 1, 2, {.beat = milliseconds(20)});
  rank.start()->wait();
  EXPECT_EQ(rank.library->work(0)->stream_waits, 1);
  EXPECT_TRUE(comes_true([&] {
    return peer.whereabouts() == "rank 0 is in all_reduce[float32, 4] (operation 0)";
  })) << peer.whereabouts();
  rank.library->work(0)->end();
  EXPECT_TRUE(comes_true([&] {
    return peer.whereabouts() == "rank 0 last completed all_reduce[float32, 4] (operation 0)";
  })) << peer.whereabouts();
}

TEST(StreamWork, StaysWhatTheRankIsInWhenItsHandleIsDropped) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  StreamRank rank(0, {}, store);
  const Watchdog peer(store, 1, 2, {.beat = milliseconds(20)});
  rank.start();
  EXPECT_TRUE(comes_true(
      [&] { return peer.whereabouts() == "rank 0 is in all_reduce[float32, 4] (operation 0)"; }));
  rank.library->work(0)->end();
  EXPECT_TRUE(comes_true([&] {
    return peer.whereabouts() == "rank 0 last completed all_reduce[float32, 4] (operation 0)";
  }));
}

// --- Waits ---------------------------------------------------------------------------------------

TEST(StreamWork, AWaitWithATimeoutDoesNotBlockInTheLibrary) {
  StreamRank rank;
  const auto work = rank.start();
  std::thread device([&] {
    comes_true([&] { return rank.library->work(0)->stream_waits == 1; });
    rank.library->work(0)->end();
  });
  work->wait(seconds(60));
  device.join();
  EXPECT_EQ(rank.library->work(0)->blocking_waits, 0);
  EXPECT_TRUE(work->is_completed());
  EXPECT_EQ(work->error(), nullptr);
}

TEST(StreamWork, ABarrierBlocksItsCallerAndHearsOfAnAbort) {
  StreamRank rank;
  const auto work = rank.caller.start(CallKind::kBarrier, {}, {});
  std::thread aborting([&] {
    comes_true([&] { return rank.library->work(0)->stream_waits == 1; });
    rank.caller.backend->abort("enough");
  });
  EXPECT_THROW(work->wait(), CommError);
  aborting.join();
  EXPECT_EQ(rank.end(), "CommError: enough");
}

TEST(StreamWork, IsCompletedOnceTheDeviceHasEndedIt) {
  StreamRank rank;
  const auto work = rank.start();
  EXPECT_FALSE(work->is_completed());
  rank.library->work(0)->end();
  EXPECT_TRUE(work->is_completed());
  EXPECT_EQ(rank.library->work(0)->stream_waits, 1);
}

// --- Graphs --------------------------------------------------------------------------------------

TEST(StreamWork, NobodyAsksForTheEndOfWhatAGraphCaptures) {
  const auto device = std::make_shared<CapturedDevice>();
  StreamRank rank({}, device);
  device->capturing = true;
  const auto captured = rank.start();
  EXPECT_FALSE(captured->is_completed());
  captured->wait();
  captured->wait(milliseconds(1));
  EXPECT_TRUE(captured->is_completed());
  rank.caller.start(CallKind::kBarrier, {}, {})->wait();
  const auto never_waited_for = rank.start();
  device->capturing = false;
  EXPECT_THAT([&] { never_waited_for->wait(); },
              testing::ThrowsMessage<ConfigError>(HasSubstr(
                  "(operation 2) was captured in a graph, and no stream outside it can wait")));
  EXPECT_EQ(rank.end(), "");
  EXPECT_EQ(rank.library->work(0)->stream_waits, 2);
  captured->wait();  // a stream outside the graph must not wait for an event inside it
  EXPECT_EQ(rank.library->work(0)->stream_waits, 2);
  // Once the thread has found the end of a later operation, it has passed the captured ones.
  rank.start()->wait();
  rank.library->work(3)->end();
  EXPECT_TRUE(comes_true([&] { return rank.library->work(3)->questions > 0; }));
  EXPECT_TRUE(captured->is_completed());
  for (const std::size_t each : {0U, 1U, 2U}) EXPECT_EQ(rank.library->work(each)->questions, 0);
  EXPECT_EQ(device->illegal_questions, 0);
  EXPECT_EQ(rank.library->work(0)->blocking_waits, 0);
}

TEST(StreamWork, AThreadThatCapturesDoesNotAskForWhatBeganBefore) {
  // Queries by the group's own thread are legal and are not counted.
  struct CallersOnly final : DeviceQueries {
    bool is_capturing() override { return capturing; }
    bool has_ended(c10d::Work& work) override {
      if (std::this_thread::get_id() == caller) ++questions;
      return work.isCompleted();
    }
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> capturing = false;
    std::atomic<int> questions = 0;
  };
  const auto device = std::make_shared<CallersOnly>();
  StreamRank rank({}, device);
  const auto work = rank.start();
  work->wait();
  device->capturing = true;
  EXPECT_FALSE(work->is_completed());
  rank.library->work(0)->end();
  EXPECT_TRUE(comes_true([&] { return work->is_completed(); }));
  EXPECT_EQ(device->questions, 0);
}

TEST(StreamWork, AThreadThatCapturesMayNotWaitForWhatBeganBefore) {
  const auto device = std::make_shared<CapturedDevice>();
  StreamRank rank({}, device);
  const auto work = rank.start();
  const auto barrier = rank.caller.start(CallKind::kBarrier, {}, {});
  device->capturing = true;
  for (const std::optional<milliseconds> timeout :
       {std::optional<milliseconds>(), {milliseconds(1)}}) {
    EXPECT_THAT([&] { work->wait(timeout); },
                testing::ThrowsMessage<ConfigError>(
                    "rank 0: wait: all_reduce[float32, 4] (operation 0) began before this thread's "
                    "stream was captured in a graph, which cannot wait for it; wait for it before "
                    "the capture"));
    EXPECT_THROW(barrier->wait(timeout), ConfigError);
  }
  EXPECT_EQ(rank.library->work(0)->stream_waits, 0);
  EXPECT_EQ(work->error(), nullptr);
  device->capturing = false;
  EXPECT_EQ(rank.end(), "");
  work->wait();
  device->capturing = true;
  work->wait();  // a no-op, because the stream has already waited
  EXPECT_THROW(work->wait(milliseconds(1)), ConfigError);
  device->capturing = false;
  for (const auto& each : rank.library->works()) each->end();
  barrier->wait();
  EXPECT_EQ(rank.end(), "");
}

// --- Memory --------------------------------------------------------------------------------------

TEST(StreamWork, FreesWhatHasEndedWhenAHandleIsWaitedForOrDropped) {
  StreamRank rank;
  rank.start();
  const auto later = rank.start();
  rank.library->work(0)->end();
  // The simulated library holds one reference, and work() adds another.
  EXPECT_TRUE(comes_true([&] {
    later->wait();
    return rank.library->work(0).use_count() == 2;
  })) << rank.library->work(0).use_count();
}

}  // namespace
}  // namespace lockstep::comm
