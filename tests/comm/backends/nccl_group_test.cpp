// Process groups of one rank over the actual NCCL library, and two ranks on one GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include <torch/cuda.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/devices/gpu_ranks.h>

namespace lockstep {
namespace {

using testing_support::kGpu;
using testing_support::kNoGpuFound;
using testing_support::no_errors;

ProcessGroupOptions over_nccl() {
  return {.backend = "nccl",
          .timeout = std::chrono::seconds(60),
          .device = kGpu,
          .environment = WorkerEnvironment{}};
}

class OneRankOverNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !nccl_available()) {
      GTEST_SKIP() << "needs a GPU, and a test program with NCCL (from the CUDA build)";
    }
  }
  static torch::Tensor numbers() {
    return torch::arange(6, torch::dtype(torch::kFloat32).device(torch::kCUDA));
  }
};

TEST_F(OneRankOverNccl, IsWhatWasAskedFor) {
  ProcessGroup group = init_process_group(over_nccl());
  EXPECT_EQ(group.backend(), "nccl");
  const auto tensor = numbers();
  group.all_reduce(tensor, ReduceOp::kAverage);
  EXPECT_TRUE(torch::equal(tensor, numbers()));
  EXPECT_EQ(group.all_gather_object("here"), std::vector<std::string>{"here"});
  const auto bucket = group.allocate({6}, torch::kFloat32).add_(numbers());
  group.reduce_scatter_tensor(bucket, bucket, ReduceOp::kAverage);
  EXPECT_TRUE(torch::equal(bucket, numbers()));
  EXPECT_FALSE(group.shares_memory());
}

TEST_F(OneRankOverNccl, AutoIsSingle) {
  ProcessGroupOptions options = over_nccl();
  options.backend = "auto";
  EXPECT_EQ(init_process_group(options).backend(), "single");
}

TEST_F(OneRankOverNccl, SplitsItsCommunicator) {
  std::optional<ProcessGroup> child;
  {
    ProcessGroup group = init_process_group(over_nccl());
    EXPECT_FALSE(group.split(-1));
    EXPECT_TRUE(group.split(/*color=*/3));
    child = group.new_group({0});
  }
  ASSERT_TRUE(child);
  EXPECT_EQ(child->backend(), "nccl");
  const auto tensor = numbers();  // the parent group no longer exists
  child->all_reduce(tensor);
  EXPECT_TRUE(torch::equal(tensor, numbers()));
  EXPECT_EQ(child->new_group({0}, "auto")->backend(), "single");
}

// With this variable LibTorch makes no watchdog of its own, and its waits block the host.
TEST_F(OneRankOverNccl, WaitsInLibTorchIfTheUserSaysSo) {
  setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*overwrite=*/1);
  ProcessGroup group = init_process_group(over_nccl());
  unsetenv("TORCH_NCCL_BLOCKING_WAIT");
  const auto tensor = numbers();
  group.async_all_reduce(tensor)->wait();
  EXPECT_TRUE(torch::equal(tensor, numbers()));
}

TEST_F(OneRankOverNccl, RunsInStreamsOfHighPriority) {
  ProcessGroupOptions options = over_nccl();
  options.high_priority_streams = true;
  ProcessGroup group = init_process_group(options);
  const auto tensor = numbers();
  group.all_reduce(tensor);
  EXPECT_TRUE(torch::equal(tensor, numbers()));
}

TEST(TwoRanksOnOneGpu, ReduceThroughHostMemory) {
  const testing_support::CapturedLog log;  // each rank has a copy
  const auto errors = testing_support::run_two_ranks_on_a_gpu([&](ProcessGroup group) {
    if (group.rank() == 0 && log.lines().empty()) {
      throw Error("no warning of the GPU that is shared");
    }
    const auto bucket = group.allocate({1 << 20}, torch::kFloat32);
    if (bucket.device() != kGpu) throw Error("allocated elsewhere");
    bucket.fill_(group.rank() + 1);
    const auto work = group.async_all_reduce(bucket, ReduceOp::kAverage);
    const auto more = torch::full({3}, group.rank(), kGpu);
    const auto more_work = group.async_broadcast(more, 1);
    more_work->wait();
    work->wait();
    if (!torch::equal(bucket, torch::full_like(bucket, 1.5))) throw Error("wrong mean");
    if (!torch::equal(more, torch::full_like(more, 1))) throw Error("wrong broadcast");
  });
  if (errors == kNoGpuFound) GTEST_SKIP() << "needs a GPU, and a CUDA build of LibTorch";
  EXPECT_EQ(errors, no_errors(2));
}

}  // namespace
}  // namespace lockstep
