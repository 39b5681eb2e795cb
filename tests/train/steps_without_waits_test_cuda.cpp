// Steps on a GPU in which the host waits for nothing. LibTorch's own check makes an operator or
// copy that waits throw, but does not notice waits for an event or a stream; device_run_test.cpp
// counts those on a simulated device.
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <optional>

#include <lockstep/parallel/sync_batch_norm.h>
#include <tests/support/devices/gpu.h>
#include <tests/train/step_loop.h>

namespace lockstep::train {
namespace {

using testing_support::kGpu;

// torch.cuda.set_sync_debug_mode("error").
class NoWaits {
 public:
  NoWaits() { set(c10::cuda::SyncDebugMode::L_ERROR); }
  ~NoWaits() { set(c10::cuda::SyncDebugMode::L_DISABLED); }
  NoWaits(const NoWaits&) = delete;
  NoWaits& operator=(const NoWaits&) = delete;

 private:
  static void set(c10::cuda::SyncDebugMode mode) {
    c10::cuda::warning_state().set_sync_debug_mode(mode);
  }
};

class StepsOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
    if (!nccl_available()) GTEST_SKIP() << "needs a test program with NCCL (from the CUDA build)";
    group_.emplace(init_process_group(
        {.backend = "nccl", .device = kGpu, .environment = WorkerEnvironment{}}));
  }
  ProcessGroup& group() { return *group_; }

 private:
  std::optional<ProcessGroup> group_;
};

TEST_F(StepsOnGpu, WaitForNothing) {
  const OptimizerOptions adam = AdamWOptions{.lr = 0.001};
  for (const StepCase& each :
       {StepCase{.name = "ddp"}, StepCase{.name = "ddp, bf16", .precision = Precision::kBf16},
        StepCase{.name = "ddp, fp16", .precision = Precision::kFp16},
        StepCase{.name = "ddp, adamw", .optimizer = adam},
        StepCase{.name = "zero1, adamw", .strategy = "zero1", .optimizer = adam},
        StepCase{.name = "zero1, fp16, adamw",
                 .strategy = "zero1",
                 .precision = Precision::kFp16,
                 .optimizer = adam},
        StepCase{.name = "single", .strategy = "single"}}) {
    StepLoop loop(each, digits_task(), group(), kGpu);
    loop.steps(3);  // the buckets are made again after the first
    const NoWaits no_waits;
    EXPECT_NO_THROW(loop.steps(3)) << each.name;
  }
}

TEST_F(StepsOnGpu, WaitForNothingInBatchNormalisation) {
  const torch::Tensor input = torch::randn({4, 3, 2, 2}, kGpu).requires_grad_();
  const torch::Tensor weight = torch::ones({3}, kGpu).requires_grad_();
  const torch::Tensor mean = torch::zeros({3}, kGpu), variance = torch::ones({3}, kGpu);
  const auto step = [&] {
    sync_batch_norm(input, weight, weight, mean, variance, 0.1, 1e-5, group())
        .square()
        .sum()
        .backward();
  };
  step();
  const NoWaits no_waits;
  EXPECT_NO_THROW(step());
}

// What the check itself is worth.
TEST_F(StepsOnGpu, AnItemIsAWait) {
  const torch::Tensor one = torch::ones({}, kGpu);
  const NoWaits no_waits;
  EXPECT_ANY_THROW(one.item<float>());
}

}  // namespace
}  // namespace lockstep::train
