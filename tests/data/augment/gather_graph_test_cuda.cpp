// The cuda engine's kernel in a CUDA graph. Compiled when LibTorch has CUDA; skips without a GPU.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cstring>

#include <lockstep/data/augment/cuda/gather_kernel.h>
#include <lockstep/data/augment/cuda/gather_plan.h>
#include <lockstep/data/loader/cuda/gather_engine.h>

namespace lockstep::testing_support {
namespace {

// The gather maps of a batch in an epoch, as the bytes that are copied to the GPU.
torch::Tensor maps_of(const data::GatherPlan& plan, std::int64_t count, std::uint32_t epoch) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(data::GatherImage));
  torch::Tensor maps = torch::empty({count, kBytes}, torch::kUInt8);
  for (std::int64_t i = 0; i < count; ++i) {
    const data::GatherImage image =
        plan.image(i, {.seed = 1, .epoch = epoch, .sample = static_cast<std::uint64_t>(i)});
    std::memcpy(maps.data_ptr<std::uint8_t>() + i * kBytes, &image, sizeof(image));
  }
  return maps;
}

data::GatherLaunch launch_of(const data::GatherPlan& plan, const torch::Tensor& source,
                             const torch::Tensor& maps, const torch::Tensor& output) {
  return {.shape = plan.shape(),
          .images = static_cast<const data::GatherImage*>(maps.const_data_ptr()),
          .count = maps.size(0),
          .source = source.const_data_ptr<std::uint8_t>(),
          .output = output.data_ptr()};
}

// The graph is captured once. Each replay makes the batch described by the maps in its memory.
TEST(GatherKernel, IsReplayedInAGraph) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  constexpr std::int64_t kCount = 37;
  const data::GatherPlan plan({Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, Cutout{8},
                               Normalize{{0.5, 0.4, 0.3}, {0.2, 0.3, 0.4}}},
                              {3, 32, 32}, false);
  const torch::Tensor source = torch::randint(256, {kCount, 3, 32, 32}, torch::kUInt8);
  const torch::Tensor source_there = source.cuda();
  const torch::Tensor maps_there = maps_of(plan, kCount, 0).cuda();
  const torch::Tensor output_there = torch::empty({kCount, 3, 32, 32}, torch::kCUDA);

  const at::cuda::CUDAStream stream = at::cuda::getStreamFromPool();
  torch::cuda::synchronize();
  const c10::cuda::CUDAStreamGuard guard(stream);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const int error =
      data::launch_gather(launch_of(plan, source_there, maps_there, output_there), stream.stream());
  graph.capture_end();
  ASSERT_EQ(error, 0);

  for (const std::uint32_t epoch : {1U, 2U}) {
    const torch::Tensor maps = maps_of(plan, kCount, epoch);
    maps_there.copy_(maps);
    graph.replay();
    torch::Tensor expected = torch::empty({kCount, 3, 32, 32});
    data::gather_on_cpu(launch_of(plan, source, maps, expected));
    EXPECT_TRUE(torch::equal(output_there.cpu(), expected)) << "epoch " << epoch;
  }
}

}  // namespace
}  // namespace lockstep::testing_support
