// CUDA graphs of training steps, which need a GPU. trainer_graph_test.cpp tests the surrounding
// code with a stand-in.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <lockstep/core/capture_scope.h>
#include <lockstep/core/error.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/train/optimization/step_seed.h>
#include <lockstep/train/step_graph.h>
#include <lockstep/train/trainer.h>
#include <tests/support/devices/gpu.h>
#include <tests/support/messages.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing_support::kGpu;
using testing_support::message_of;

ProcessGroup gpu_group(const std::string& backend) {
  return init_process_group(
      {.backend = backend, .device = kGpu, .environment = WorkerEnvironment{}});
}

Outcome train_on_gpu(TrainerOptions run, const std::string& strategy, const std::string& backend,
                     LoaderEngineKind engine) {
  run.device = kGpu;
  torch::manual_seed(3);
  MnistNet net(MnistNetOptions{.fused_kernels = false});
  ClassificationTask task(net, ClassificationLoss::kNegativeLogLikelihood);
  Loader loader(train_images(), DistributedSampler(kImages, {}), kNormalize,
                {.batch_size = kGlobalBatch, .engine = engine, .device = kGpu});
  ProcessGroup group = gpu_group(backend);
  Trainer trainer(run, make_strategy(strategy, group));
  Outcome outcome{trainer.fit(task, loader, [&] { return test_loader(group); }), {}, {}};
  net->to(torch::kCPU);
  for (const auto& [name, tensor] : state_dict(*net)) {
    outcome.state.emplace_back(name, tensor.clone());
  }
  return outcome;
}

// Losses, weights and dropout equal those without a graph, also with a smaller last batch, with our
// loader on the GPU and on the CPU, and in float32, bfloat16 and float16 with loss scaling.
TEST(StepGraphOnGpu, TrainsAsARunWithout) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  for (const auto precision : {Precision::k32, Precision::kBf16, Precision::kFp16}) {
    for (const auto engine : {LoaderEngineKind::kCuda, LoaderEngineKind::kNative}) {
      TrainerOptions run = options(3);
      run.precision = precision;
      run.optimizer = AdamWOptions{.lr = 1e-3};
      run.gradient_clip_norm = 1.0;
      run.ema_decay = 0.9;
      const Outcome plain = train_on_gpu(run, "single", "auto", engine);
      run.cuda_graph = true;
      const Outcome graph = train_on_gpu(run, "single", "auto", engine);
      expect_close(plain.state, graph.state);
      for (std::size_t e = 0; e < plain.report.epochs.size(); ++e) {
        EXPECT_NEAR(plain.report.epochs[e].train_loss, graph.report.epochs[e].train_loss, 1e-3)
            << to_string(precision) << ", epoch " << e;
      }
    }
  }
}

TEST(StepGraphOnGpu, RecordsReductionsOverNccl) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  if (!nccl_available()) GTEST_SKIP() << "needs a test program with NCCL (from the CUDA build)";
  TrainerOptions run = options(3);
  run.accumulate_grad_batches = 2;
  const Outcome plain = train_on_gpu(run, "ddp", "nccl", LoaderEngineKind::kCuda);
  run.cuda_graph = true;
  const Outcome graph = train_on_gpu(run, "ddp", "nccl", LoaderEngineKind::kCuda);
  EXPECT_EQ(graph.report.info.backend, plain.report.info.backend);
  expect_close(plain.state, graph.state);
}

// Each replay uses the generator's current seed.
TEST(StepGraphOnGpu, ReplaysDrawAnew) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  const torch::Tensor ones = torch::ones({4096}, kGpu);
  const torch::Tensor drawn = torch::empty_like(ones);
  const auto draw = [&] { drawn.copy_(torch::dropout(ones, /*p=*/0.5, /*train=*/true)); };
  const auto seeded = [&](std::uint64_t seed, const std::function<void()>& work) {
    seed_generators(seed, kGpu);
    work();
    return drawn.clone();
  };
  const std::unique_ptr<detail::StepGraph> graph = detail::make_step_graph(kGpu, gpu_group("auto"));
  graph->warm_up(draw);
  const torch::Tensor first = seeded(7, draw), second = seeded(8, draw);
  EXPECT_FALSE(first.equal(second));
  graph->capture(draw);
  const auto replay = [&] { graph->replay(); };
  EXPECT_TRUE(seeded(7, replay).equal(first));
  EXPECT_TRUE(seeded(8, replay).equal(second));
  EXPECT_TRUE(seeded(7, replay).equal(first));
}

// The learning rate, the step count and found_inf are read on the device when the graph runs.
TEST(StepGraphOnGpu, ReplaysOptimizersSteps) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  const OptimizerOptions cases[] = {SgdOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true},
                                    AdamOptions{.lr = 0.01, .amsgrad = true},
                                    AdamWOptions{.lr = 0.01}};
  for (const OptimizerOptions& of_case : cases) {
    const torch::Tensor start = torch::randn({1000}, kGpu);
    torch::Tensor plain = start.clone().requires_grad_(), other = start.clone().requires_grad_();
    plain.mutable_grad() = torch::zeros_like(start);
    other.mutable_grad() = torch::zeros_like(start);
    Optimizer plain_optimizer({{"w", plain}}, of_case), replayed({{"w", other}}, of_case);
    replayed.set_capturable(true);
    const std::unique_ptr<detail::StepGraph> graph =
        detail::make_step_graph(kGpu, gpu_group("auto"));
    for (std::int64_t step = 1; step <= 6; ++step) {
      const torch::Tensor gradient = torch::randn_like(start);
      plain.mutable_grad().copy_(gradient);
      other.mutable_grad().copy_(gradient);
      plain_optimizer.set_lr(0.02 / static_cast<double>(step));
      replayed.set_lr(0.02 / static_cast<double>(step));
      plain_optimizer.step();
      if (step <= 2) {
        graph->warm_up([&] { replayed.step(); });
        continue;
      }
      if (step == 3) {
        graph->capture([&] {
          const CaptureScope capturing;
          replayed.step();
        });
      }
      graph->replay();
    }
    EXPECT_TRUE(torch::allclose(plain, other, 1e-6, 1e-7)) << plain_optimizer.name();
    const NamedTensors state = replayed.state();
    if (replayed.name() == "sgd") continue;
    EXPECT_EQ(state.back().second.item<std::int64_t>(), 6) << replayed.name();
  }
}

// Whether LibTorch's allocator reuses freed memory that another stream has used. It does
// not while it considers a capture under way.
bool reuses_memory_of_streams() {
  constexpr std::int64_t kFloats = 100'000'000;  // the allocator has no other block of this size
  const c10::impl::VirtualGuardImpl impl(kGpu.type());
  const auto allocate = [&] {
    const torch::Tensor tensor = torch::empty({kFloats}, kGpu);
    tensor.record_stream(impl.getStreamFromGlobalPool(kGpu));
    return tensor.data_ptr();
  };
  const void* const first = allocate();
  torch::cuda::synchronize();
  return allocate() == first;
}

TEST(StepGraphOnGpu, AFailedCaptureLeavesTheDeviceToOthers) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  const torch::Tensor ones = torch::ones({4096}, kGpu), sum = torch::zeros({}, kGpu);
  ASSERT_TRUE(reuses_memory_of_streams());
  std::unique_ptr<detail::StepGraph> failed = detail::make_step_graph(kGpu, gpu_group("auto"));
  EXPECT_ANY_THROW(failed->capture([&] { sum.copy_((ones * 2).sum().item<float>() + ones[0]); }));
  failed.reset();
  EXPECT_TRUE(reuses_memory_of_streams());
  EXPECT_EQ(torch::rand({4}, kGpu).size(0), 4) << "drawn outside a graph";
  const std::unique_ptr<detail::StepGraph> graph = detail::make_step_graph(kGpu, gpu_group("auto"));
  graph->warm_up([&] { sum.copy_((ones * 2).sum()); });
  graph->capture([&] { sum.copy_((ones * 2).sum()); });
  sum.zero_();
  graph->replay();
  EXPECT_EQ(sum.item<float>(), 8192);
}

struct HostReadingTask final : ClassificationTask {
  using ClassificationTask::ClassificationTask;
  torch::Tensor training_step(const Batch& batch) override {
    const torch::Tensor loss = ClassificationTask::training_step(batch);
    if (loss.item<float>() > 1e6) throw Error("diverged");
    return loss;
  }
};

TEST(StepGraphOnGpu, ATaskThatWaitsForTheDeviceIsNamed) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  HostReadingTask task(MnistNet(MnistNetOptions{.fused_kernels = false}),
                       ClassificationLoss::kNegativeLogLikelihood);
  Loader loader(train_images(), DistributedSampler(kImages, {}), kNormalize,
                {.batch_size = kGlobalBatch, .device = kGpu});
  TrainerOptions run = options(1);
  run.device = kGpu;
  run.cuda_graph = true;
  Trainer trainer(run, make_strategy("single", gpu_group("auto")));
  EXPECT_THAT(message_of<ConfigError>([&] { trainer.fit(task, loader); }),
              HasSubstr("Trainer: cuda_graph: the step cannot be recorded: "));
}

}  // namespace
}  // namespace lockstep::train
