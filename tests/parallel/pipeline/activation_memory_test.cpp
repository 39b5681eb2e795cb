// The measured bytes held by stages, compared with the bytes computed from the sizes of their
// layers.
#include <lockstep/parallel/pipeline/activation_memory.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/parallel/pipeline/distributed_pipeline.h>
#include <lockstep/parallel/pipeline/pipeline.h>
#include <lockstep/parallel/pipeline/schedule/schedules.h>
#include <lockstep/parallel/pipeline/stage.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>

namespace lockstep {
namespace {

namespace nn = torch::nn;

using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::message_of;

constexpr std::int64_t kFeatures = 64;
constexpr std::int64_t kRows = 16;  // rows per micro-batch
constexpr std::int64_t kTensorBytes = kRows * kFeatures * static_cast<std::int64_t>(sizeof(float));
constexpr int kMicroBatchCount = 8;

enum class Behind { kRelu, kGelu };

pipeline::StageModule gelu_or_relu_stage(int layers, Behind activation) {
  nn::Sequential stage;
  for (int layer = 0; layer < layers; ++layer) {
    stage->push_back(nn::Linear(kFeatures, kFeatures));
    if (activation == Behind::kRelu) {
      stage->push_back(nn::ReLU());
    } else {
      stage->push_back(nn::GELU());
    }
  }
  return stage;
}

// What each stage and each worker of a four-layer model holds, in rounded tensors of one
// micro-batch. (The losses are a few bytes.)
struct HeldTensors {
  std::vector<std::int64_t> stages, workers;
};

std::vector<std::int64_t> in_tensors(const std::vector<std::int64_t>& bytes) {
  std::vector<std::int64_t> tensors;
  for (const std::int64_t each : bytes) tensors.push_back((each + kTensorBytes / 2) / kTensorBytes);
  return tensors;
}

HeldTensors held_by(Schedule schedule, Behind activation, bool recompute = false) {
  at::set_num_threads(1);
  torch::manual_seed(3);
  const int stages = schedule == Schedule::kZbV || schedule == Schedule::kInterleaved ? 4 : 2;
  std::vector<pipeline::StageModule> modules;
  for (int stage = 0; stage < stages; ++stage)
    modules.push_back(gelu_or_relu_stage(4 / stages, activation));
  Pipeline pipe(modules, {torch::kCPU, torch::kCPU},
                {.micro_batches = kMicroBatchCount,
                 .schedule = schedule,
                 .recompute = recompute,
                 .threads_per_worker = 1,
                 .measure_memory = true});
  const torch::Tensor x = torch::randn({kRows * kMicroBatchCount, kFeatures});
  const torch::Tensor y = torch::zeros_like(x);
  const auto criterion = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  pipe.step(criterion, x, y);
  const std::vector<std::int64_t> first = pipe.peak_activation_bytes().stages;
  // The first step created the weights' gradients, which are not counted. No step counts what an
  // earlier step left.
  pipe.step(criterion, x, y);
  const ActivationBytes bytes = pipe.peak_activation_bytes();
  // A stage's output lives until the next stage has computed its weight gradients or rerun its
  // forward. That may happen before or after the stage's own next action. With whole backwards and
  // without recomputation, the peaks of two steps therefore differ by at most one output: that of
  // the previous micro-batch, which is already freed when the next worker is ahead.
  const bool splits = schedule == Schedule::kZbH1 || schedule == Schedule::kZbV;
  if (!splits && !recompute) {
    for (std::size_t stage = 0; stage < first.size(); ++stage) {
      EXPECT_LE(std::abs(bytes.stages[stage] - first[stage]), kTensorBytes * 3 / 2) << stage;
    }
  }
  return {in_tensors(bytes.stages), in_tensors(bytes.workers)};
}

std::int64_t largest_of(const std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

// GELU keeps the output of its linear layer for its gradient, and the next layer keeps the output
// of GELU.
TEST(ActivationMemory, IsThatOfTheMicroBatchesInFlight) {
  EXPECT_THAT(held_by(Schedule::kGPipe, Behind::kGelu).stages, Each(4 * kMicroBatchCount));
  EXPECT_THAT(held_by(Schedule::kGPipe, Behind::kRelu).stages, Each(2 * kMicroBatchCount));
  EXPECT_THAT(held_by(Schedule::k1F1B, Behind::kGelu).stages,
              ElementsAre(AnyOf(4 * 2, 4 * 2 - 1), 4 * 1));
  EXPECT_THAT(held_by(Schedule::k1F1B, Behind::kRelu).workers, ElementsAre(2 * 2, 2 * 1));
}

// As above, up to two tensors more than with 1F1B may be held: outputs that worker 1 still needs.
// GPipe holds 32.
TEST(ActivationMemory, OfZbVIsNoMoreThanThatOf1F1B) {
  const HeldTensors v = held_by(Schedule::kZbV, Behind::kGelu);
  const HeldTensors one = held_by(Schedule::k1F1B, Behind::kGelu);
  EXPECT_LE(largest_of(one.workers), 4 * 2);
  EXPECT_LE(largest_of(v.workers), 4 * 2 + 2);
  EXPECT_EQ(v.stages.size(), 4U);
  EXPECT_EQ(v.workers.size(), 2U);
}

// The second part of a split backward keeps its inputs beyond the first part. Here they are more
// than what the first part released, because ReLU keeps no tensor of its own.
TEST(ActivationMemory, CountsWhatASplitBackwardKeeps) {
  const HeldTensors split = held_by(Schedule::kZbH1, Behind::kRelu);
  const HeldTensors whole = held_by(Schedule::k1F1B, Behind::kRelu);
  EXPECT_GT(split.workers[1], whole.workers[1]);
  EXPECT_GT(split.workers[1], 2 * 2);  // the activations of two micro-batches alone
}

TEST(ActivationMemory, IsSmallerWithRecomputation) {
  const HeldTensors again = held_by(Schedule::kGPipe, Behind::kGelu, /*recompute=*/true);
  const HeldTensors kept = held_by(Schedule::kGPipe, Behind::kGelu);
  EXPECT_LT(again.workers[0], kept.workers[0]);
  EXPECT_LT(again.workers[1], kept.workers[1]);
}

// Between ranks, a stage's input is a copy, which counts where it is held. An output is freed once
// it has been sent, because GELU keeps its input only. Each stage has two linear layers and two
// GELUs.
TEST(ActivationMemory, OnRanksIsThatOfTheOwnStages) {
  std::vector<ActivationBytes> held(2);
  std::vector<pipeline::StageModule> modules;
  for (int stage = 0; stage < 2; ++stage) modules.push_back(gelu_or_relu_stage(2, Behind::kGelu));
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    const auto rank = static_cast<std::size_t>(group.rank());
    DistributedPipeline pipe({modules[rank]}, group, torch::kCPU,
                             {.micro_batches = kMicroBatchCount, .measure_memory = true});
    const torch::Tensor x = torch::ones({kRows * kMicroBatchCount, kFeatures});
    pipe.step([](const torch::Tensor& output,
                 const torch::Tensor& target) { return torch::mse_loss(output, target); },
              x, x);
    held[rank] = pipe.peak_activation_bytes();
  });
  EXPECT_EQ(errors, testing_support::no_errors(2));
  // Each count is for two micro-batches. The output of the first one may still be waiting to be
  // sent.
  EXPECT_THAT(in_tensors(held[0].stages), ElementsAre(AnyOf(2 * 3 + 1, 2 * 4)));
  EXPECT_THAT(in_tensors(held[1].stages), ElementsAre(4 + 1));
  for (const ActivationBytes& each : held) EXPECT_EQ(each.workers, each.stages);
}

// What stage `index` of one worker holds, in tensors: the peak after its forward, and the one after
// its backward. Its outputs are dropped between the two.
struct StagePeaks {
  std::int64_t forward = 0, backward = 0;
};

StagePeaks peaks_of_a_stage(int index, bool recompute, bool received) {
  at::set_num_threads(1);
  pipeline::ActivationMemory memory({0, 0});
  const auto peak = [&] {
    return in_tensors(memory.peaks().stages)[static_cast<std::size_t>(index)];
  };
  pipeline::Stage stage(index, gelu_or_relu_stage(2, Behind::kGelu), torch::kCPU, recompute,
                        /*tied=*/nullptr);
  stage.count_memory(memory, received);
  stage.begin({.micro_batches = 1, .seed = 4, .training = true});
  const pipeline::ActivationMemory::Watch watch(&memory, 0);
  StagePeaks peaks;
  stage.forward(0, {.tensors = {torch::ones({kRows, kFeatures})}, .requires_grad = {true}});
  peaks.forward = peak();
  stage.backward(0, {torch::ones({kRows, kFeatures})});
  peaks.backward = peak();
  EXPECT_EQ(memory.peaks().stages[static_cast<std::size_t>(1 - index)], 0);
  EXPECT_EQ(memory.peaks().workers[0], memory.peaks().stages[static_cast<std::size_t>(index)]);
  return peaks;
}

// Each of the two GELUs keeps its input, and the second linear layer keeps the output of the first
// GELU. The stage returns the output of the second one.
TEST(StageMemory, WithoutRecomputationPeaksInTheForward) {
  for (const int index : {0, 1}) {
    const StagePeaks peaks = peaks_of_a_stage(index, /*recompute=*/false, /*received=*/false);
    EXPECT_EQ(peaks.forward, 4) << index;
    EXPECT_EQ(peaks.backward, 4) << index;
  }
}

// The forward holds its output only. The backward holds what the second forward has computed.
TEST(StageMemory, WithRecomputationPeaksInTheBackward) {
  for (const int index : {0, 1}) {
    const StagePeaks peaks = peaks_of_a_stage(index, /*recompute=*/true, /*received=*/false);
    EXPECT_EQ(peaks.forward, 1) << index;
    EXPECT_EQ(peaks.backward, 3) << index;
  }
}

// An input from another rank counts, except for the batch.
TEST(StageMemory, CountsInputsFromAnotherRank) {
  EXPECT_EQ(peaks_of_a_stage(0, /*recompute=*/false, /*received=*/true).forward, 4);
  EXPECT_EQ(peaks_of_a_stage(1, /*recompute=*/false, /*received=*/true).forward, 4 + 1);
  EXPECT_EQ(peaks_of_a_stage(0, /*recompute=*/true, /*received=*/true).backward, 3);
  const StagePeaks again = peaks_of_a_stage(1, /*recompute=*/true, /*received=*/true);
  EXPECT_EQ(again.forward, 1 + 1);
  EXPECT_EQ(again.backward, 3 + 1);
}

TEST(StageMemory, OfAnEvaluationIsNotCounted) {
  pipeline::ActivationMemory memory({0});
  pipeline::Stage stage(0, gelu_or_relu_stage(2, Behind::kGelu), torch::kCPU, /*recompute=*/false,
                        /*tied=*/nullptr);
  stage.count_memory(memory);
  stage.begin({.micro_batches = 1, .seed = 4, .training = false});
  const pipeline::ActivationMemory::Watch watch(&memory, 0);
  const pipeline::StageMessage outputs =
      stage.forward(0, {.tensors = {torch::ones({kRows, kFeatures})}});
  memory.note(0);
  EXPECT_THAT(memory.peaks().stages, ElementsAre(0));
  EXPECT_FALSE(outputs.tensors.at(0).requires_grad());
  EXPECT_THAT(outputs.requires_grad, testing::IsEmpty()) << "no gradient comes back";
  EXPECT_EQ(stage.peak_activations(), 0);
}

// One worker frees what another one allocated.
TEST(ActivationMemory, SeesWhatOtherWorkersFree) {
  pipeline::ActivationMemory memory({0, 1});
  torch::Tensor kept;
  std::thread([&] {
    const pipeline::ActivationMemory::Watch watch(&memory, 0);
    const torch::Tensor nobodys = torch::zeros({1000});
    const pipeline::ActivationMemory::Claim claim(&memory, {0, 0});
    kept = torch::zeros({100});
    torch::zeros({7});  // a temporary
    memory.note(0);
  }).join();
  EXPECT_THAT(memory.peaks().stages, ElementsAre(400, 0));
  std::thread([&] {
    const pipeline::ActivationMemory::Watch watch(&memory, 1);
    kept.reset();
    const pipeline::ActivationMemory::Claim claim(&memory, {1, 0});
    const torch::Tensor own = torch::zeros({10});
    memory.note(0);
    memory.note(1);
  }).join();
  EXPECT_THAT(memory.peaks().stages, ElementsAre(400, 40));
  EXPECT_THAT(memory.peaks().workers, ElementsAre(400, 40));
  memory.begin();
  EXPECT_THAT(memory.peaks().workers, ElementsAre(0, 0));
}

TEST(ActivationMemory, AdoptsAndGivesAway) {
  pipeline::ActivationMemory memory({0, 0});
  const Tensors message{torch::zeros({10}), torch::Tensor()};
  memory.adopt({1, 0}, message);
  memory.adopt({0, 0}, message);  // no effect: it already has an owner
  memory.note(0);
  memory.note(1);
  EXPECT_THAT(memory.peaks().stages, ElementsAre(0, 40));
  EXPECT_THAT(memory.peaks().workers, ElementsAre(40));
  memory.begin();
  memory.adopt({0, 0}, message);
  const torch::Tensor shared = message[0];
  memory.give_away(message);  // no effect: `shared` still holds it
  memory.note(0);
  EXPECT_THAT(memory.peaks().stages, ElementsAre(40, 0));
}

// The next stage holds the output as its input.
TEST(ActivationMemory, PassesToTheNextStageWhenABackwardEnds) {
  pipeline::ActivationMemory memory({0, 1});
  const Tensors output{torch::zeros({10})};
  memory.adopt({0, 3}, output);
  memory.note(1);
  EXPECT_THAT(memory.peaks().workers, ElementsAre(0, 0));
  memory.end({0, 3});
  memory.note(0);
  memory.note(1);
  EXPECT_THAT(memory.peaks().workers, ElementsAre(0, 40));

  // When all backwards have ended, the output belongs to no stage.
  memory.begin();
  memory.adopt({0, 3}, output);
  memory.end({1, 3});
  memory.end({0, 3});
  memory.note(0);
  memory.note(1);
  EXPECT_THAT(memory.peaks().workers, ElementsAre(0, 0));
}

TEST(ActivationMemory, EndsOnlyTheMicroBatchWhoseBackwardEnded) {
  pipeline::ActivationMemory memory({0, 1});
  const Tensors third{torch::zeros({10})}, second{torch::zeros({20})};
  memory.adopt({0, 3}, third);
  memory.adopt({0, 2}, second);
  memory.end({1, 2});
  memory.end({0, 3});  // stage 1 has not ended this one
  memory.note(0);
  memory.note(1);
  EXPECT_THAT(memory.peaks().stages, ElementsAre(80, 40));
  memory.end({0, 2});  // stage 1 has ended this one already
  memory.note(1);
  EXPECT_THAT(memory.peaks().stages, ElementsAre(80, 40));

  // A new step does not know which backwards the last one ended.
  memory.begin();
  memory.adopt({0, 2}, second);
  memory.end({0, 2});
  memory.note(1);
  EXPECT_THAT(memory.peaks().stages, ElementsAre(0, 80));
}

// The peak of a worker is that of the sum over its stages, not the sum of their peaks.
TEST(ActivationMemory, OfAWorkerIsWhatItsStagesHoldAtOnce) {
  pipeline::ActivationMemory memory({0, 1, 0});
  const Tensors passed{torch::zeros({10})}, kept{torch::zeros({5})};
  memory.adopt({1, 0}, passed);
  memory.adopt({0, 0}, kept);
  memory.note(0);
  memory.note(1);
  memory.end({1, 0});  // the next stage is on worker 0
  memory.note(2);
  memory.note(1);
  EXPECT_THAT(memory.peaks().stages, ElementsAre(20, 40, 40));
  EXPECT_THAT(memory.peaks().workers, ElementsAre(20 + 40, 40));

  memory.begin();
  memory.adopt({0, 0}, passed);
  memory.note(0);
  memory.end({0, 0});
  memory.end({1, 0});
  memory.note(2);
  EXPECT_THAT(memory.peaks().stages, ElementsAre(40, 0, 40));
  EXPECT_THAT(memory.peaks().workers, ElementsAre(40, 0)) << "the same memory, one after the other";
}

TEST(ActivationMemory, GivesAwayOnlyWhatNothingElseHolds) {
  pipeline::ActivationMemory memory({0});
  const Tensors alone{torch::zeros({10})}, viewed{torch::zeros({20})};
  const torch::Tensor view = viewed[0].narrow(0, 3, 2);
  for (const Tensors* each : {&alone, &viewed}) memory.adopt({0, 0}, *each);
  for (const Tensors* each : {&alone, &viewed}) memory.give_away(*each);
  memory.give_away({torch::Tensor(), torch::empty({0})});
  memory.note(0);
  EXPECT_THAT(memory.peaks().stages, ElementsAre(80));
}

TEST(ActivationMemory, MustBeAskedFor) {
  Pipeline pipe({gelu_or_relu_stage(1, Behind::kRelu)}, {torch::kCPU}, {.micro_batches = 1});
  EXPECT_THAT(message_of<ConfigError>([&] { pipe.peak_activation_bytes(); }),
              HasSubstr("Pipeline: peak_activation_bytes() needs PipelineOptions::measure_memory"));
  const pipeline::StageModule modules[] = {gelu_or_relu_stage(1, Behind::kRelu),
                                           gelu_or_relu_stage(1, Behind::kRelu)};
  const auto errors = testing_support::run_group(2, "shm", [&](ProcessGroup group) {
    DistributedPipeline ranks({modules[group.rank()]}, group, torch::kCPU);
    ranks.peak_activation_bytes();
  });
  EXPECT_THAT(errors, Each(HasSubstr("DistributedPipeline: peak_activation_bytes() needs")));
}

}  // namespace
}  // namespace lockstep
