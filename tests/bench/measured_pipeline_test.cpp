// The pipelines that `lockstep explain pipeline --measured` runs: their waiting stages, and the
// results of a run. No test depends on the speed of the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include <torch/utils.h>

#include <lockstep/bench/pipeline/measured_pipeline.h>
#include <lockstep/bench/pipeline/waiting_stage.h>
#include <lockstep/parallel/pipeline/gradient_nodes.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>
#include <lockstep/parallel/pipeline/schedule/table.h>
#include <lockstep/parallel/pipeline/stage_backward.h>

namespace lockstep::bench {
namespace {

using pipeline::GradientSink;
using pipeline::StageBackward;

std::shared_ptr<CalibratedWait> shortest_wait() {
  return std::make_shared<CalibratedWait>(std::chrono::microseconds(1));
}

TEST(CalibratedWait, CountsItsWaits) {
  CalibratedWait wait(std::chrono::milliseconds(4));
  EXPECT_EQ(wait.waits(), 0);
  EXPECT_EQ(wait.mean_seconds(), 0);
  for (int i = 0; i < 3; ++i) wait();
  EXPECT_EQ(wait.waits(), 3);
  EXPECT_GT(wait.mean_seconds(), 0);
  wait.forget();
  EXPECT_EQ(wait.waits(), 0);

  CalibratedWait none(std::chrono::nanoseconds(0));
  none();
  EXPECT_EQ(none.waits(), 0);
}

// A stage in the middle waits once in each of F, I and W.
TEST(WaitingStage, WaitsInEachPartOfASplitBackward) {
  const auto wait = shortest_wait();
  WaitingStage stage(wait);
  torch::Tensor x = torch::ones({2, 3});
  const GradientSink sink = GradientSink::attach(x);
  const torch::Tensor y = stage->forward(x);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_TRUE(y.equal(torch::ones({2, 3})));
  EXPECT_EQ(wait->waits(), 1);

  StageBackward backward({y}, {sink});
  const torch::Tensor gradient = torch::full({2, 3}, 5.0F);
  const pipeline::Tensors of_inputs = backward.backward_input({gradient});
  EXPECT_EQ(wait->waits(), 2);
  ASSERT_EQ(of_inputs.size(), 1U);
  EXPECT_TRUE(of_inputs[0].equal(gradient));
  EXPECT_FALSE(stage->parameters()[0].grad().defined());
  backward.backward_weight();
  EXPECT_EQ(wait->waits(), 3);
  EXPECT_TRUE(stage->parameters()[0].grad().defined());
}

TEST(WaitingStage, WaitsTwiceInAWholeBackward) {
  const auto wait = shortest_wait();
  WaitingStage stage(wait);
  torch::Tensor x = torch::ones({2});
  const GradientSink sink = GradientSink::attach(x);
  StageBackward backward({stage->forward(x)}, {sink});
  const pipeline::Tensors of_inputs = backward.backward({torch::full({2}, 5.0F)});
  EXPECT_EQ(wait->waits(), 3);
  EXPECT_TRUE(of_inputs.at(0).equal(torch::full({2}, 5.0F)));
}

// The first stage costs as much as the others, although nobody needs the gradient of its input.
TEST(WaitingStage, CostsTheSameAsTheFirstStage) {
  for (const bool split : {false, true}) {
    const auto wait = shortest_wait();
    WaitingStage stage(wait);
    StageBackward backward({stage->forward(torch::ones({2}))}, {GradientSink()});
    if (split) {
      backward.backward_input({torch::ones({2})});
      EXPECT_EQ(wait->waits(), 1);
      backward.backward_weight();
    } else {
      backward.backward({torch::ones({2})});
    }
    EXPECT_EQ(wait->waits(), 3);
  }
}

// When the module attaches a sink itself, as a first stage with parameters does, its waits are
// divided between the parts of the backward like those of other stages.
TEST(WaitingStage, WaitsInEachPartBehindASinkOfTheModule) {
  const auto wait = shortest_wait();
  WaitingStage stage(wait);
  torch::Tensor x = torch::ones({2});
  GradientSink::attach(x);
  StageBackward backward({stage->forward(x)}, {GradientSink()});
  const pipeline::Tensors of_inputs = backward.backward_input({torch::ones({2})});
  EXPECT_EQ(wait->waits(), 2);
  EXPECT_FALSE(of_inputs.at(0).defined());
  backward.backward_weight();
  EXPECT_EQ(wait->waits(), 3);
}

TEST(WaitingStage, RecordsNothingWithoutGradients) {
  WaitingStage stage(shortest_wait());
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(stage->forward(torch::ones({2})).requires_grad());
}

std::size_t actions_of(const std::vector<std::vector<pipeline::Interval>>& workers) {
  std::size_t count = 0;
  for (const auto& intervals : workers) count += intervals.size();
  return count;
}

TEST(MeasurePipeline, RunsATableWithStagesThatWait) {
  const pipeline::Table table = pipeline::zero_bubble_v(2, 3);
  const PipelineMeasurement measured =
      measure_pipeline(table, {.wait_microseconds = 200, .steps = 2});
  ASSERT_TRUE(measured.waiting.has_value());
  EXPECT_EQ(measured.waiting->asked_microseconds, 200);
  EXPECT_GT(measured.waiting->mean_microseconds, 0);
  EXPECT_TRUE(measured.worker_bytes.empty());
  EXPECT_GT(measured.step_seconds, 0);
  EXPECT_GT(measured.empty_step_seconds, 0);
  std::size_t actions = 0;
  for (const auto& line : measured.table.workers) actions += line.size();
  EXPECT_EQ(actions_of(measured.timeline.workers), actions);
}

TEST(MeasurePipeline, MeasuresTheMemoryOfStagesThatCompute) {
  const ToyStages toys = {
      .activation = "gelu", .width = 64, .layers = 2, .samples = 16, .steps = 2};
  const PipelineMeasurement all = measure_pipeline(pipeline::gpipe(2, 8), toys);
  const PipelineMeasurement few = measure_pipeline(pipeline::one_forward_one_backward(2, 8), toys);
  EXPECT_FALSE(all.waiting.has_value());
  ASSERT_EQ(all.worker_bytes.size(), 2U);
  ASSERT_EQ(few.stage_bytes.size(), 2U);
  // The first worker holds 8 micro-batches, or 2. Each one keeps the outputs of two linear layers
  // and two activations. The loss keeps nothing, and the last stage's output is already freed.
  const double tensor = 16 * 64 * sizeof(float);
  EXPECT_NEAR(static_cast<double>(all.worker_bytes[0]), 8 * 4 * tensor, tensor / 4);
  EXPECT_NEAR(static_cast<double>(few.worker_bytes[0]), 2 * 4 * tensor, tensor / 4);
  EXPECT_NEAR(static_cast<double>(few.worker_bytes[1]), 3 * tensor, tensor / 4);
}

// Between the two parts of its backward, the first stage keeps as much as any other: the gradient
// that flows into its layer (instead of what GELU saved), and its output, which the next stage
// still needs. The gradients of its output and of the batch are already freed. One worker has both
// stages, so that all actions run in the order of the table.
TEST(MeasurePipeline, TheFirstStageKeepsNoMoreThanTheOthers) {
  const ToyStages toys = {
      .activation = "gelu", .width = 64, .layers = 1, .samples = 16, .steps = 1};
  const pipeline::Table table = pipeline::table_of("0F0,1F0,1I0,0I0,1W0,0W0\n", "one worker");
  const PipelineMeasurement measured = measure_pipeline(table, toys);
  const double tensor = 16 * 64 * sizeof(float);
  ASSERT_EQ(measured.stage_bytes.size(), 2U);
  EXPECT_NEAR(static_cast<double>(measured.stage_bytes[0]), 2 * tensor, tensor / 4);
}

}  // namespace
}  // namespace lockstep::bench
