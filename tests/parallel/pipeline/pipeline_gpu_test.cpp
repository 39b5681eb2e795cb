// Pipelines on GPUs: the caller's streams, and gradients compared with one process on the same GPU.
// Workers and ranks may share one GPU, so that one is enough for all tests but the copies between
// two. Skips without a GPU; caller_state_test.cpp tests the propagation of streams to other threads
// without one.
#include <lockstep/parallel/pipeline/pipeline.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/parallel/model_parallel.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <tests/parallel/pipeline/nets.h>
#include <tests/support/groups.h>

namespace lockstep {
namespace {

using testing::Each;
using testing::SizeIs;
using testing_support::accumulate;
using testing_support::make_net;
using testing_support::Net;
using testing_support::net_on;
using testing_support::no_errors;
using testing_support::relative_difference;
using testing_support::run_group;

constexpr int kGpuParts = 4;
constexpr double kGpuTolerance = 1e-5;

class PipelineOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU, and a CUDA build of LibTorch";
    at::globalContext().setAllowTF32CuDNN(false);  // TF32 rounding would hide differences
  }

  static torch::Device gpu(int index) {
    return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
  }
  static c10::Stream side_stream(torch::Device device) {
    return c10::impl::VirtualGuardImpl(torch::kCUDA).getStreamFromGlobalPool(device);
  }

  // Values that are written late: the current stream of `device` is busy before it writes them.
  static torch::Tensor late_ones(torch::Device device, std::int64_t columns = 4) {
    const torch::Tensor ones = torch::zeros({8, columns}, device);
    torch::Tensor work = torch::full({4096, 4096}, 1e-4, device);
    torch::cuda::synchronize(device.index());
    for (int i = 0; i < 50; ++i) work = work.mm(work);
    return ones.fill_(1);
  }

  // The net after one step in one process on `device`.
  static Net learnt_alone(const std::string& name, torch::Device device) {
    Net net = net_on(device, make_net(name));
    torch::manual_seed(9);
    accumulate(net, kGpuParts);
    return net;
  }

  // All workers are on `device`.
  static Pipeline pipeline_on(torch::Device device, const Net& net, PipelineOptions options) {
    options.micro_batches = kGpuParts;
    const int workers = workers_for(options.schedule, static_cast<int>(net.stages.size()));
    return Pipeline(net.stages,
                    std::vector<torch::Device>(static_cast<std::size_t>(workers), device), options);
  }

  // A stage that returns its input and records the current stream of `device`.
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

// The batch is on a GPU that the pipeline does not use, and its values have not been written yet.
// It is large, so that it would be overwritten before it has been copied.
TEST_F(PipelineOnAGpu, WaitsForABatchOnAnotherGpu) {
  if (torch::cuda::device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  for (const bool on_a_side_stream : {false, true}) {
    const c10::OptionalStreamGuard side(on_a_side_stream ? std::optional(side_stream(gpu(1)))
                                                         : std::nullopt);
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

TEST_F(PipelineOnAGpu, LearnsTheGradientsOfOneProcess) {
  for (const char* name : {"mnist", "dropout", "resnet", "tied", "forked"}) {
    const Net expected = learnt_alone(name, gpu(0));
    for (const std::string& schedule : schedule_names()) {
      for (const bool recompute : {false, true}) {
        const Net net = net_on(gpu(0), make_net(name));
        Pipeline pipe = pipeline_on(gpu(0), net,
                                    {.schedule = schedule_named(schedule), .recompute = recompute});
        torch::manual_seed(9);
        const torch::Tensor loss = pipe.step(net.criterion, net.x, net.y);
        EXPECT_EQ(loss.device(), gpu(0));
        EXPECT_LT(relative_difference(net, expected), kGpuTolerance)
            << name << ' ' << schedule << ' ' << recompute;
      }
    }
  }
}

// The batch is written late on one of the caller's streams, on which the caller also reads the
// gradients.
TEST_F(PipelineOnAGpu, LearnsFromWhatTheCallersStreamWrites) {
  const Net expected = learnt_alone("mnist", gpu(0));
  for (const Schedule schedule : {Schedule::k1F1B, Schedule::kZbV}) {
    const Net net = net_on(gpu(0), make_net("mnist"));
    Pipeline pipe = pipeline_on(gpu(0), net, {.schedule = schedule});
    torch::cuda::synchronize(0);
    const c10::StreamGuard on_side(side_stream(gpu(0)));
    const torch::Tensor x = torch::zeros_like(net.x);
    x.copy_(net.x * late_ones(gpu(0))[0][0]);
    torch::manual_seed(9);
    pipe.step(net.criterion, x, net.y);
    EXPECT_LT(relative_difference(net, expected), kGpuTolerance) << schedule_name(schedule);
  }
}

TEST_F(PipelineOnAGpu, LearnsTheGradientsOfOneProcessOnTwo) {
  if (torch::cuda::device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  for (const char* name : {"mnist", "dropout", "forked"}) {
    const Net expected = learnt_alone(name, gpu(0));
    for (const Schedule schedule : {Schedule::kInterleaved, Schedule::kZbV}) {
      const Net net = net_on(gpu(0), make_net(name));
      Pipeline pipe(net.stages, {gpu(0), gpu(1)},
                    {.micro_batches = kGpuParts, .schedule = schedule});
      torch::manual_seed(9);
      pipe.step(net.criterion, net.x, net.y);
      // Generators of different GPUs produce the same numbers from the same seed.
      EXPECT_LT(relative_difference(net, expected), kGpuTolerance)
          << name << ' ' << schedule_name(schedule);
    }
  }
}

// The tensors of one message come from two GPUs, and both are written late.
TEST_F(PipelineOnAGpu, WaitsForAllTensorsOfABatchOnSeveralGpus) {
  if (torch::cuda::device_count() < 3) GTEST_SKIP() << "needs three GPUs";
  const pipeline::StageModule sum(
      std::make_shared<torch::nn::IdentityImpl>(),
      [](const Tensors& inputs) -> Tensors { return {inputs[0] + inputs[1]}; });
  Pipeline pipe({sum}, {gpu(0)}, {.micro_batches = 2});
  const torch::Tensor one = late_ones(gpu(1), 1 << 22), other = torch::ones({8, 1 << 22}, gpu(2));
  const Tensors outputs = pipe.forward({one, other});
  EXPECT_TRUE(outputs.at(0).eq(2).all().item<bool>());
}

// Two ranks share the GPU. Their messages go through host memory.
TEST_F(PipelineOnAGpu, OnRanksLearnsTheGradientsOfOneProcess) {
  for (const char* backend : {"shm", "gloo"}) {
    for (const Schedule schedule : {Schedule::kInterleaved, Schedule::kZbV}) {
      const Net expected = learnt_alone("mnist", gpu(0));
      const Net net = net_on(gpu(0), make_net("mnist"));
      const auto errors = run_group(2, backend, [&](ProcessGroup group) {
        const bool of_zbv = schedule == Schedule::kZbV;
        const std::vector<std::size_t> own = group.rank() == 0
                                                 ? std::vector<std::size_t>{0, of_zbv ? 3U : 2U}
                                                 : std::vector<std::size_t>{1, of_zbv ? 2U : 3U};
        DistributedPipeline pipe({net.stages[own[0]], net.stages[own[1]]}, group, gpu(0),
                                 {.micro_batches = kGpuParts, .schedule = schedule});
        pipe.step(net.criterion, net.x, net.y);
        torch::cuda::synchronize(0);
        group.barrier();
      });
      EXPECT_EQ(errors, no_errors(2));
      EXPECT_LT(relative_difference(net, expected), kGpuTolerance)
          << backend << ' ' << schedule_name(schedule);
    }
  }
}

TEST_F(PipelineOnAGpu, AndACpuAreTheStagesOfAModelParallelModule) {
  constexpr double kToleranceBetweenDevices = 1e-4;  // kernels of two devices round differently
  const Net expected = make_net("mnist"), net = make_net("mnist");
  accumulate(expected, 1);
  ModelParallel split(net.stages, {torch::kCPU, gpu(0), torch::kCPU, gpu(0)});
  const torch::Tensor output = split.forward(net.x);
  EXPECT_EQ(output.device(), gpu(0));
  net.criterion(output, net.y.to(gpu(0))).backward();
  EXPECT_LT(relative_difference(net, expected), kToleranceBetweenDevices);
}

}  // namespace
}  // namespace lockstep
