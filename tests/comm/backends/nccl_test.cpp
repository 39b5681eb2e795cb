// The NCCL adapter: its calls to the library, with a fake library that needs no GPU, and its
// results on a GPU, if there is one.
#include <lockstep/comm/backends/nccl/nccl.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include <torch/cuda.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/comm/backends/nccl/gpu_sharing.h>
#include <lockstep/comm/backends/nccl/nccl_backend.h>
#include <lockstep/core/clock.h>
#include <lockstep/core/error.h>
#include <tests/comm/backends/backend_oracle.h>
#include <tests/support/groups.h>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing_support::Caller;
using testing_support::no_errors;

TEST(NcclVersion, IsKnownWhereThereIsNccl) {
  if (!nccl::is_available()) GTEST_SKIP() << "needs a test program with NCCL (from the CUDA build)";
  const auto version = nccl::loaded_version();
  ASSERT_TRUE(version);
  EXPECT_TRUE(nccl::gpu_sharing(version)) << nccl::version_text(*version);
}

// --- The adapter over a stand-in -----------------------------------------------------------------

// The calls that the library received; outlives the library.
struct Journal {
  void write(const std::string& entry) {
    const std::scoped_lock lock(mutex);
    entries.push_back(entry);
  }
  std::vector<std::string> read() {
    const std::scoped_lock lock(mutex);
    return entries;
  }
  std::mutex mutex;
  std::vector<std::string> entries;
  std::latch may_shut_down{1};
  std::latch gone{1};
};

// An operation whose kernels never end.
class EndlessWork final : public c10d::Work {
 public:
  explicit EndlessWork(std::shared_ptr<Journal> journal) : journal_(std::move(journal)) {}
  bool isCompleted() override { return false; }
  bool wait(milliseconds timeout) override {
    if (timeout == c10d::Store::kNoTimeout) {
      journal_->write("stream waits");
      return true;
    }
    throw std::runtime_error("Work timed out in blocking wait.");
  }

 private:
  const std::shared_ptr<Journal> journal_;
};

constexpr int kRefused = 9;

class StandIn final : public c10d::Backend {
 public:
  explicit StandIn(std::shared_ptr<Journal> journal)
      : c10d::Backend(/*rank=*/0, /*size=*/1), journal_(std::move(journal)) {}
  ~StandIn() override { journal_->gone.count_down(); }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&,
                                           const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<EndlessWork>(journal_);
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>&, int peer, int) override {
    journal_->write(str("send to ", peer));
    if (peer == kRefused) throw std::runtime_error("no such peer");
    return nullptr;
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>&, int peer, int) override {
    journal_->write(str("receive from ", peer));
    return nullptr;
  }
  void startCoalescing() override { journal_->write("begin"); }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    journal_->write("end");
    return c10::make_intrusive<EndlessWork>(journal_);
  }
  void abort() override { journal_->write("abort"); }
  void shutdown() override {
    journal_->may_shut_down.wait();
    journal_->write("shutdown");
  }

 private:
  const std::shared_ptr<Journal> journal_;
};

Caller caller_of(std::shared_ptr<Journal> journal) {
  c10d_adapter::AdapterOptions options;
  options.timeout = seconds(30);
  return Caller(nccl::adapt(c10::make_intrusive<StandIn>(std::move(journal)),
                            c10::make_intrusive<c10d::HashStore>(), options),
                0, 1);
}

TEST(NcclAdapter, LetsKernelsEndThatAStreamWaitsFor) {
  const auto journal = std::make_shared<Journal>();
  journal->may_shut_down.count_down();
  caller_of(journal).all_reduce(torch::ones({4}));
  journal->gone.wait();
  EXPECT_THAT(journal->read(), ElementsAre("stream waits", "shutdown"));
}

TEST(NcclAdapter, DoesNotWaitLongForPeersThatStay) {
  const auto journal = std::make_shared<Journal>();
  const auto start = Clock::now();
  caller_of(journal).all_reduce(torch::ones({4}));
  EXPECT_LT(seconds_since(start), 5);
  EXPECT_THAT(journal->read(), ElementsAre("stream waits"));
  journal->may_shut_down.count_down();
  journal->gone.wait();
  EXPECT_THAT(journal->read(), ElementsAre("stream waits", "shutdown"));
}

TEST(NcclAdapter, AFailedGroupIsAbortedAndNotShutDown) {
  const auto journal = std::make_shared<Journal>();
  {
    Caller caller = caller_of(journal);
    auto work = caller.start(CallKind::kAllReduce, {}, torch::ones({4}));
    EXPECT_THROW(work->wait(milliseconds(1)), TimeoutError);
    EXPECT_THROW(caller.all_reduce(torch::ones({4})), TimeoutError);
  }
  journal->gone.wait();
  EXPECT_THAT(journal->read(), ElementsAre("abort"));
}

Message message(CallKind kind, int peer) { return {kind, torch::ones({4}), peer, 0}; }

TEST(NcclAdapter, ABatchIsOneGroup) {
  const auto journal = std::make_shared<Journal>();
  journal->may_shut_down.count_down();
  {
    Caller caller = caller_of(journal);
    const auto works =
        caller.backend->batch({message(CallKind::kSend, 1), message(CallKind::kRecv, 2)});
    ASSERT_EQ(works.size(), 2U);
    for (const auto& work : works) work->wait();
  }
  journal->gone.wait();
  EXPECT_THAT(journal->read(), ElementsAre("begin", "send to 1", "receive from 2", "end",
                                           "stream waits", "stream waits", "shutdown"));
}

TEST(NcclAdapter, AFailedBatchLeavesNoGroupOpen) {
  const auto journal = std::make_shared<Journal>();
  {
    Caller caller = caller_of(journal);
    EXPECT_THROW(
        caller.backend->batch({message(CallKind::kSend, kRefused), message(CallKind::kRecv, 2)}),
        CommError);
  }
  journal->gone.wait();
  EXPECT_THAT(journal->read(), ElementsAre("begin", "send to 9", "end", "abort"));
}

TEST(NcclAdapter, CannotReceiveFromAnyRank) {
  const auto journal = std::make_shared<Journal>();
  journal->may_shut_down.count_down();
  Caller caller = caller_of(journal);
  EXPECT_THROW(caller.backend->recv(torch::ones({4}), std::nullopt, 0), ConfigError);
}

// --- On a GPU ------------------------------------------------------------------------------------

class OnOneGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU, and a CUDA build of LibTorch";
  }
};

TEST_F(OnOneGpu, NcclDoesAllCollectives) {
  if (!nccl::is_available()) GTEST_SKIP() << "needs a test program with NCCL (from the CUDA build)";
  const torch::Device gpu(torch::kCUDA, 0);
  WorkerEnvironment alone;
  auto backend = nccl::connect(c10::make_intrusive<c10d::HashStore>(), alone, gpu, seconds(60));
  Caller caller(std::move(backend), /*rank=*/0, /*size=*/1, gpu);
  for (const std::int64_t count : {1, 1000}) {
    check_reductions(caller, count);
    for (const auto type : {torch::kFloat32, torch::kInt16, torch::kUInt8}) {
      check_moves(caller, count, type);
    }
  }
  caller.barrier();
}

// Keeps an H100 busy for at most half a second.
void keep_busy(torch::Device gpu) {
  const auto factor = torch::ones({4096, 4096}, torch::TensorOptions().device(gpu));
  for (int i = 0; i < 200; ++i) torch::mm(factor, factor);
}

ProcessGroup group_of_one(torch::Device gpu) {
  return init_process_group({.backend = "nccl",
                             .timeout = seconds(60),
                             .device = gpu,
                             .environment = WorkerEnvironment()});
}

std::size_t ended_calls(ProcessGroup& group) {
  return group.recorded_calls(Clock::time_point()).size();
}

TEST_F(OnOneGpu, AnOperationHasEndedWhenItsKernelHas) {
  if (!nccl::is_available()) GTEST_SKIP() << "needs a test program with NCCL (from the CUDA build)";
  const torch::Device gpu(torch::kCUDA, 0);
  auto group = group_of_one(gpu);
  const auto tensor = torch::ones({1000}, torch::TensorOptions().device(gpu));
  group.all_reduce(tensor);  // the first operation connects
  torch::cuda::synchronize(0);
  for (const Deadline deadline(seconds(30)); ended_calls(group) < 1 && !deadline.expired();) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_EQ(ended_calls(group), 1U);
  keep_busy(gpu);
  group.all_reduce(tensor);
  EXPECT_EQ(ended_calls(group), 1U) << "the stream only waits";
  torch::cuda::synchronize(0);
  for (const Deadline deadline(seconds(30)); ended_calls(group) < 2 && !deadline.expired();) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(ended_calls(group), 2U);
}

TEST_F(OnOneGpu, AWaitWithATimeoutAndABarrierWaitForTheKernel) {
  if (!nccl::is_available()) GTEST_SKIP() << "needs a test program with NCCL (from the CUDA build)";
  const torch::Device gpu(torch::kCUDA, 0);
  auto group = group_of_one(gpu);
  const auto tensor = torch::ones({1000}, torch::TensorOptions().device(gpu));
  keep_busy(gpu);
  group.async_all_reduce(tensor)->wait(seconds(30));
  EXPECT_EQ(ended_calls(group), 1U);
  keep_busy(gpu);
  group.barrier();
  EXPECT_EQ(ended_calls(group), 2U);
}

TEST_F(OnOneGpu, TwoRanksMeetInPinnedHostMemory) {
  const int fd = listen_on("127.0.0.1", 0);
  const auto errors = testing_support::run_threads(2, [&](int rank) {
    const torch::Device gpu(torch::kCUDA, 0);
    auto group = init_process_group({.backend = "auto",
                                     .timeout = seconds(60),
                                     .device = gpu,
                                     .environment = testing_support::environment_of(rank, 2, fd)});
    auto sum = torch::full({1000, 3}, rank + 1, torch::TensorOptions().device(gpu));
    group.all_reduce(sum.t());
    auto told = torch::full({5}, rank, torch::TensorOptions().device(gpu));
    group.broadcast(told, 1);
    auto gathered = torch::empty({2, 5}, torch::TensorOptions().device(gpu));
    group.all_gather_into_tensor(gathered, torch::full({5}, rank + 0.5F, gpu));
    if (!torch::equal(sum.cpu(), torch::full({1000, 3}, 3))) throw Error("wrong sum");
    if (!torch::equal(told.cpu(), torch::full({5}, 1))) throw Error("wrong broadcast");
    if (gathered[1][4].item<float>() != 1.5F) throw Error("wrong all_gather");
  });
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep::comm
