// The times of a pipeline whose stages are on a simulated device. Each piece of that device's work
// takes one millisecond of its own time.
#include <lockstep/parallel/pipeline/pipeline.h>

#include <cmath>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/parallel/pipeline/step_times.h>
#include <tests/support/far_device/far_device.h>

namespace lockstep {
namespace {

namespace far_device = testing_support::far_device;
using pipeline::Interval;
using pipeline::Timeline;

class DeviceTimeline : public testing::Test {
 protected:
  DeviceTimeline() { far_device::install(); }
  // The second stage is on a simulated device; `first` is the device of the first stage.
  static Pipeline two_stages(torch::Device first) {
    return Pipeline(
        {pipeline::StageModule(torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::Tanh())),
         pipeline::StageModule(torch::nn::Sequential(torch::nn::Linear(5, 3)))},
        {first, far_device::device(1)}, {.micro_batches = 3});
  }
  static void step(Pipeline& pipe) {
    pipe.step([](const torch::Tensor& output,
                 const torch::Tensor& y) { return torch::mse_loss(output, y); },
              torch::ones({6, 6}), torch::zeros({6, 3}));
  }
};

// Times count from the step's first action, and no action takes negative time.
void expect_plausible(const Timeline& timeline) {
  double begin = timeline.end;
  for (const auto& worker : timeline.workers) {
    for (const Interval& each : worker) {
      EXPECT_LE(each.begin, each.end);
      begin = std::min(begin, each.begin);
    }
  }
  EXPECT_EQ(begin, 0);
  EXPECT_LT(timeline.end, 60);
}

void expect_whole_milliseconds(const std::vector<Interval>& actions) {
  for (const Interval& each : actions) {
    const double milliseconds = (each.end - each.begin) * 1000;
    EXPECT_NEAR(milliseconds, std::round(milliseconds), 1e-6);
    EXPECT_GT(milliseconds, 0.5) << pipeline::text(each.action);
  }
}

TEST_F(DeviceTimeline, IsThatOfTheDevicesInWhichTheStepRan) {
  Pipeline pipe = two_stages(far_device::device(0));
  {
    const c10::StreamGuard first(far_device::new_stream(0));
    const c10::StreamGuard second(far_device::new_stream(1));
    step(pipe);
  }
  // The caller's current streams are no longer those in which the step ran.
  expect_plausible(pipe.timeline());
  for (const auto& worker : pipe.timeline().workers) expect_whole_milliseconds(worker);
}

TEST_F(DeviceTimeline, OfAStageOnACpuIsByTheHostsClock) {
  Pipeline pipe = two_stages(torch::kCPU);
  step(pipe);
  const Timeline durations = pipe.step_times()->durations();
  expect_plausible(durations);
  for (const auto& worker : durations.workers) EXPECT_EQ(worker.front().begin, 0);
  expect_whole_milliseconds(durations.workers[1]);
  expect_plausible(pipe.timeline());
}

// As on CUDA, where a stage gets its input from the previous one in this way.
TEST_F(DeviceTimeline, ACopyBetweenDevicesIsInOrderWithBothStreams) {
  const torch::Tensor here = torch::arange(12.0F).view({2, 6});
  torch::Tensor there = here.to(far_device::device(0), /*non_blocking=*/true);
  const c10::StreamGuard other(far_device::new_stream(1));
  const torch::Tensor moved = there.add(1).to(far_device::device(1), /*non_blocking=*/true);
  EXPECT_TRUE(torch::equal(moved.cpu(), here + 1));
}

}  // namespace
}  // namespace lockstep
