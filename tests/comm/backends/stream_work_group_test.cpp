// A ProcessGroup whose operations continue in a stream after wait(): its handles, and what its
// flight recorder writes. The library and its device are simulated.
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/comm/group/group_impl.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/stream_library.h>
#include <tests/comm/backends/stream_rank.h>
#include <tests/support/captured_log.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::comm {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::CapturedDevice;
using testing_support::comes_true;
using testing_support::LivePeer;
using testing_support::StreamRank;

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

}  // namespace
}  // namespace lockstep::comm
