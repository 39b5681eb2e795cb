// Operations that continue in a stream after wait(), like NCCL's: how and when their ends are
// reported. The library and its device are simulated, without a GPU.
#include <lockstep/comm/backends/nccl/stream_work.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <latch>
#include <optional>
#include <thread>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/c10d/library_error.h>
#include <lockstep/comm/backends/nccl/closing_threads.h>
#include <lockstep/comm/backends/nccl/nccl_backend.h>
#include <lockstep/comm/diagnostics/watchdog.h>
#include <lockstep/comm/group/group_impl.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/backend_oracle.h>
#include <tests/comm/backends/stream_library.h>
#include <tests/support/captured_log.h>
#include <tests/support/temporary_directory.h>

namespace lockstep {
namespace {

using c10d_adapter::AdapterOptions;
using nccl::DeviceQueries;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_support::Caller;
using testing_support::CapturedDevice;
using testing_support::StreamLibrary;

using StorePointer = c10::intrusive_ptr<c10d::Store>;

bool comes_true(const std::function<bool()>& condition) {
  for (const Deadline deadline(seconds(60)); !condition();) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

// A rank of a group, by default of two ranks. The other rank exists only through its keys in the
// store. LivePeer simulates one that is alive.
struct StreamRank {
  explicit StreamRank(int rank = 0, AdapterOptions options = {},
                      StorePointer store = c10::make_intrusive<c10d::HashStore>(), int size = 2,
                      std::shared_ptr<DeviceQueries> device = std::make_shared<DeviceQueries>())
      : store(std::move(store)),
        library(c10::make_intrusive<StreamLibrary>(rank, size)),
        caller(
            nccl::adapt(library, this->store, with_defaults(std::move(options)), std::move(device)),
            rank, size) {}
  StreamRank(AdapterOptions options, std::shared_ptr<DeviceQueries> device)
      : StreamRank(0, std::move(options), c10::make_intrusive<c10d::HashStore>(), 2,
                   std::move(device)) {}

  static AdapterOptions with_defaults(AdapterOptions options) {
    if (options.timeout.count() == 0) options.timeout = seconds(600);
    return options;
  }

  std::shared_ptr<Work> start() { return caller.start(CallKind::kAllReduce, {}, torch::ones({4})); }
  std::shared_ptr<Work> recv(int source) {
    return caller.backend->recv(torch::ones({4}), source, 0);
  }
  Watchdog& watchdog() { return *caller.backend->watchdog(); }
  /// The error that the next call throws. Empty until the group has ended.
  std::string end() {
    try {
      caller.backend->check();
      return "";
    } catch (const TimeoutError& error) {
      return str("TimeoutError: ", error.what());
    } catch (const CommError& error) {
      return str("CommError: ", error.what());
    }
  }

  const StorePointer store;
  const c10::intrusive_ptr<StreamLibrary> library;
  Caller caller;
};

// A peer that sends heartbeats and does nothing else.
struct LivePeer {
  explicit LivePeer(const StreamRank& rank)
      : watchdog(rank.store, 1 - rank.caller.rank, 2, {.beat = milliseconds(20)}) {}
  const Watchdog watchdog;
};

void write_status_of(c10d::Store& store, int rank, const std::string& text) {
  store.set(str("status/", rank), std::vector<std::uint8_t>(text.begin(), text.end()));
}

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

// --- Ends of the group ---------------------------------------------------------------------------

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

// --- The flight recorder -------------------------------------------------------------------------

// Accepts tensors in host memory, unlike a group over NCCL.
class OnHost final : public Backend {
 public:
  explicit OnHost(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}
  const std::string& name() const override { return name_; }
  bool runs_on_stream() const override { return inner_->runs_on_stream(); }
  std::shared_ptr<Work> start(const Collective& call) override { return inner_->start(call); }
  std::shared_ptr<Work> send(torch::Tensor tensor, int destination, MessageTag tag) override {
    return inner_->send(std::move(tensor), destination, tag);
  }
  std::shared_ptr<Work> recv(torch::Tensor tensor, std::optional<int> source,
                             MessageTag tag) override {
    return inner_->recv(std::move(tensor), source, tag);
  }
  torch::Tensor allocate(at::IntArrayRef shape, torch::ScalarType dtype) override {
    return torch::zeros(shape, dtype);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  void check() override { inner_->check(); }

 private:
  const std::shared_ptr<Backend> inner_;
  const std::string name_ = "stand-in";
};

ProcessGroup group_of(const StreamRank& rank, const std::filesystem::path& dumps) {
  Membership membership;
  membership.name = "world";
  membership.rank = rank.caller.rank;
  membership.size = rank.caller.size;
  membership.world_ranks = {0, 1};
  membership.options.flight_recorder_directory = dumps;
  membership.progress = std::make_shared<Progress>();
  membership.recorder = std::make_shared<FlightRecorder>(membership.rank, membership.size);
  return ProcessGroup(std::make_shared<ProcessGroup::Impl>(
      std::move(membership), std::make_shared<OnHost>(rank.caller.backend)));
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t completed_calls(ProcessGroup& group) {
  return group.recorded_calls(Clock::time_point()).size();
}

TEST(StreamWork, IsRecordedAsCompletedWhenTheDeviceHasEndedIt) {
  const testing_support::TemporaryDirectory folder;
  StreamRank rank;
  ProcessGroup group = group_of(rank, folder.path());
  group.all_reduce(torch::ones({4}));
  group.async_all_reduce(torch::ones({4}));
  EXPECT_EQ(completed_calls(group), 0U);
  rank.library->work(0)->end();
  EXPECT_TRUE(comes_true([&] { return completed_calls(group) == 1; }));
  rank.library->work(1)->end();
  EXPECT_TRUE(comes_true([&] { return completed_calls(group) == 2; }));
}

TEST(StreamWork, OfAGroupIsCompletedWhenTheDeviceHasEndedItThoughACallerHasWaited) {
  const testing_support::TemporaryDirectory folder;
  StreamRank rank;
  ProcessGroup group = group_of(rank, folder.path());
  const auto work = group.async_all_reduce(torch::ones({4}));
  work->wait();
  EXPECT_FALSE(work->is_completed());
  std::thread([&] { work->wait(); }).join();  // the stream of that thread waits as well
  EXPECT_EQ(rank.library->work(0)->stream_waits, 2);
  rank.library->work(0)->end();
  EXPECT_TRUE(work->is_completed());
  EXPECT_EQ(work->error(), nullptr);
}

TEST(StreamWorkFailure, OfAGroupIsToldByTheHandleAfterAWait) {
  const testing_support::TemporaryDirectory folder;
  const testing_support::CapturedLog log;
  StreamRank rank;
  const LivePeer peer(rank);
  ProcessGroup group = group_of(rank, folder.path());
  const auto work = group.async_all_reduce(torch::ones({4}));
  work->wait();
  rank.library->work(0)->fail("NCCL error: remote process exited");
  EXPECT_TRUE(comes_true([&] { return work->is_completed() && work->error() != nullptr; }));
  EXPECT_THROW(work->wait(seconds(60)), CommError);
}

TEST(StreamWorkFailure, WritesTheStuckOperationAndTellsWhereAtTheNextCall) {
  const testing_support::TemporaryDirectory folder;
  const testing_support::CapturedLog log;
  StreamRank rank(0, {.timeout = seconds(1)});
  ProcessGroup group = group_of(rank, folder.path() / "dumps");
  const auto file = folder.path() / "dumps" / "rank_0";
  group.all_reduce(torch::ones({4}));
  group.all_reduce(torch::ones({5}));
  rank.library->work(0)->end();
  EXPECT_TRUE(comes_true([&] { return !log.lines().empty(); }));
  EXPECT_THAT(log.lines(), testing::ElementsAre(HasSubstr(file.string())));
  const std::string dump = content_of(file);
  EXPECT_THAT(dump, AllOf(HasSubstr("all_reduce[float32, 4]"), HasSubstr("all_reduce[float32, 5]"),
                          HasSubstr("completed"), HasSubstr("started")));
  EXPECT_LT(dump.find("all_reduce[float32, 4]"), dump.find("all_reduce[float32, 5]"));
  EXPECT_EQ(completed_calls(group), 1U);
  try {
    group.all_reduce(torch::ones({6}));
    FAIL() << "the group has ended";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("all_reduce[float32, 5] (operation 1) over nccl"),
                                    HasSubstr("; flight recorder in " + file.string())));
  }
}

TEST(StreamWork, OfAGroupGoesOnAfterAWaitThatACaptureMayNotMake) {
  const testing_support::TemporaryDirectory folder;
  const auto device = std::make_shared<CapturedDevice>();
  StreamRank rank({}, device);
  ProcessGroup group = group_of(rank, folder.path() / "dumps");
  const auto work = group.async_all_reduce(torch::ones({4}));
  device->capturing = true;
  EXPECT_THROW(work->wait(), ConfigError);
  device->capturing = false;
  EXPECT_EQ(work->error(), nullptr);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "dumps"));
  rank.library->work(0)->end();
  work->wait(seconds(60));
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

// --- The library's error messages ----------------------------------------------------------------

struct LibraryText {
  const char* name;
  std::string text;
  std::string essence;
};

class LibraryErrors : public testing::TestWithParam<LibraryText> {};

TEST_P(LibraryErrors, AreOneLine) {
  EXPECT_EQ(c10d_adapter::essence(GetParam().text), GetParam().essence);
}

INSTANTIATE_TEST_SUITE_P(
    All, LibraryErrors,
    testing::Values(
        LibraryText{"Gloo",
                    "[/build/gloo/pair.cc:534] Connection closed by peer [127.0.0.1]:4711. This is "
                    "typically caused by a crash",
                    "Connection closed by peer [127.0.0.1]:4711"},
        LibraryText{"NcclWithACause",
                    "NCCL error in: /build/NCCLUtils.cpp:94, unhandled system error (run with "
                    "NCCL_DEBUG=INFO for details), NCCL version 2.28.9\n"
                    "ncclSystemError: System call failed. \nLast error:\n"
                    "Error while creating shared memory segment /dev/shm/nccl-x (size 33030528), "
                    "error: No space left on device (28)\n"
                    "Exception raised from create at /build/NCCLUtils.cpp:94 (most recent call "
                    "first):\nframe #0: c10::Error::Error",
                    "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), "
                    "NCCL version 2.28.9; last error: Error while creating shared memory segment "
                    "/dev/shm/nccl-x (size 33030528), error: No space left on device (28)"},
        LibraryText{"NcclWithoutACause",
                    "NCCL error: internal error, NCCL version 2.28.9\n"
                    "ncclInternalError: Internal check failed.\nLast error: Unknown NCCL Error\n",
                    "NCCL error: internal error, NCCL version 2.28.9; ncclInternalError: Internal "
                    "check failed."},
        LibraryText{"NcclAborted", "NCCL communicator was aborted on rank 1. ",
                    "NCCL communicator was aborted on rank 1. "},
        LibraryText{"OtherLines", "CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA",
                    "CUDA error: out of memory"}),
    [](const auto& info) { return info.param.name; });

// --- The end of the process ----------------------------------------------------------------------

TEST(ClosingThreads, EndBeforeTheyAreDestroyed) {
  std::latch may_end{1};
  std::atomic<bool> ended = false;
  std::thread later;
  {
    nccl::ClosingThreads threads;
    threads.run(
        [&] {
          may_end.wait();
          ended = true;
        },
        milliseconds(1));
    EXPECT_FALSE(ended);
    later = std::thread([&] { may_end.count_down(); });
  }
  EXPECT_TRUE(ended);
  later.join();
}

}  // namespace
}  // namespace lockstep
