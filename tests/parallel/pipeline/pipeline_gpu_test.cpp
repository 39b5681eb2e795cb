// Pipelines on GPUs and the caller's streams. Skips without a GPU; what carries streams to other
// threads is also tested in caller_state_test.cpp.
#include <lockstep/parallel/pipeline/pipeline.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>
#include <torch/nn.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

using testing::Each;
using testing::SizeIs;

class PipelineOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU, and a CUDA build of LibTorch";
  }

  static torch::Device gpu(int index) {
    return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
  }
  static c10::Stream side_stream(torch::Device device) {
    return c10::impl::VirtualGuardImpl(torch::kCUDA).getStreamFromGlobalPool(device);
  }

  // Ones that come late: the current stream of `device` is busy before it writes them.
  static torch::Tensor late_ones(torch::Device device, std::int64_t columns = 4) {
    const torch::Tensor ones = torch::zeros({8, columns}, device);
    torch::Tensor work = torch::full({4096, 4096}, 1e-4, device);
    torch::cuda::synchronize(device.index());
    for (int i = 0; i < 50; ++i) work = work.mm(work);
    return ones.fill_(1);
  }

  // A stage that returns its input, and notes the current stream of `device`.
  pipeline::StageModule noting_stage(torch::Device device) {
    return pipeline::StageModule(
        std::make_shared<torch::nn::IdentityImpl>(),
        [this, device](const Tensors& inputs) -> Tensors {
          const std::scoped_lock lock(mutex);
          streams.push_back(c10::impl::VirtualGuardImpl(torch::kCUDA).getStream(device));
          return inputs;
        });
  }

  std::mutex mutex;
  std::vector<c10::Stream> streams;
};

TEST_F(PipelineOnAGpu, ComputesOnTheCallersStreams) {
  const c10::Stream side = side_stream(gpu(0));
  const c10::StreamGuard on_side(side);
  Pipeline pipe({noting_stage(gpu(0))}, {gpu(0)}, {.micro_batches = 2});
  const torch::Tensor output = pipe.forward(late_ones(gpu(0)));
  EXPECT_EQ(output.sum().item<double>(), 32);
  EXPECT_THAT(streams, SizeIs(2));
  EXPECT_THAT(streams, Each(side));
}

// The batch is on a GPU that the pipeline does not use, where its values are still to be written.
// It is large, so that it would be overwritten before it has been copied.
TEST_F(PipelineOnAGpu, WaitsForABatchOnAnotherGpu) {
  if (torch::cuda::device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  for (const bool on_a_side_stream : {false, true}) {
    const c10::OptionalStreamGuard side(
        on_a_side_stream ? std::optional(side_stream(gpu(1))) : std::nullopt);
    Pipeline pipe({noting_stage(gpu(1))}, {gpu(0)}, {.micro_batches = 2});
    const torch::Tensor batch = late_ones(gpu(1), 1 << 22);
    const torch::Tensor output = pipe.forward(batch);
    batch.fill_(7);
    EXPECT_EQ(output.device(), gpu(0));
    EXPECT_TRUE(output.eq(1).all().item<bool>());
    EXPECT_THAT(streams, SizeIs(2));
    EXPECT_THAT(streams, Each(c10::impl::VirtualGuardImpl(torch::kCUDA).getStream(gpu(1))));
    streams.clear();
  }
}

}  // namespace
}  // namespace lockstep
