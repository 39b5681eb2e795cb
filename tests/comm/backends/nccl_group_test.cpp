// Process groups of one rank over the actual NCCL library. tests/comm/gpu_ranks/ has those of
// several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <torch/cuda.h>

#include <lockstep/comm/group/process_group.h>
#include <tests/support/devices/gpu.h>

namespace lockstep {
namespace {

using testing_support::kGpu;

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

}  // namespace
}  // namespace lockstep
