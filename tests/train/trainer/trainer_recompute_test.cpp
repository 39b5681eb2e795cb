// Strategies pipeline and hybrid when each forward runs again before its backward.
#include <atomic>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>

#include <tests/train/staged_net.h>

namespace lockstep::train {
namespace {

using testing_support::no_errors;
using testing_support::run_group;

// Counts how often it computes a loss.
class LossCountingTask final : public ClassificationTask {
 public:
  explicit LossCountingTask(const torch::nn::Sequential& net)
      : ClassificationTask(net, ClassificationLoss::kCrossEntropy,
                           [net](int stages) { return cut_staged_net(net, {}, stages); }) {}

  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& labels) const override {
    ++losses_;
    return ClassificationTask::loss(output, labels);
  }
  int losses() const { return losses_; }

 private:
  mutable std::atomic<int> losses_ = 0;
};

// What one rank observes in one step.
struct RecomputedStep {
  int losses = 0;   // losses computed on this rank
  double loss = 0;  // the mean that the strategy returned
  RunInfo info{};
  std::vector<std::int64_t> bytes{};  // memory of each device in the process
};

RecomputedStep step_with(const ProcessGroup& group, const std::string& name,
                         const StrategyOptions& strategy_options) {
  at::set_num_threads(1);
  LossCountingTask task(make_staged_net());
  const auto strategy = make_strategy(name, group, strategy_options);
  strategy->place(task.module(), torch::kCPU);
  strategy->attach(task, {});
  const auto optimizer = strategy->make_optimizer(SgdOptions{.lr = 0.1});
  task.module().train();
  strategy->follow_modes();
  optimizer->zero_grad();
  const Batch batch = {.images = torch::arange(8 * 28 * 28).mul(0.1).sin().view({8, 1, 28, 28}),
                       .labels = torch::arange(8),
                       .size = 8};
  PhaseSeconds phases;
  RecomputedStep step;
  step.loss = strategy->step(batch, {}, phases).item<double>();
  step.losses = task.losses();
  strategy->describe(step.info);
  step.bytes = strategy->device_bytes(optimizer->state());
  strategy->group().barrier();
  return step;
}

struct RecomputedWay {
  const char* strategy;
  int ranks;
  StrategyOptions options;
};

// What each rank observed, in the order of the ranks.
std::vector<RecomputedStep> steps_of(const RecomputedWay& way, bool recompute) {
  StrategyOptions strategy_options = way.options;
  strategy_options.recompute = recompute;
  std::vector<RecomputedStep> steps(static_cast<std::size_t>(way.ranks));
  if (way.ranks == 1) {
    steps[0] = step_with(group_of_one(), way.strategy, strategy_options);
    return steps;
  }
  const auto errors = run_group(way.ranks, "shm", [&](const ProcessGroup& group) {
    steps[static_cast<std::size_t>(group.rank())] =
        step_with(group, way.strategy, strategy_options);
  });
  EXPECT_EQ(errors, no_errors(way.ranks)) << way.strategy;
  return steps;
}

int losses_in(const std::vector<RecomputedStep>& steps) {
  int losses = 0;
  for (const RecomputedStep& step : steps) losses += step.losses;
  return losses;
}

// The criterion is part of the last stage's forward, and each of two pipelines has four
// micro-batches.
TEST(TrainerRecompute, RunsEachForwardTwice) {
  const RecomputedWay ways[] = {
      {"pipeline", 1, {.stages = 4, .micro_batches = 4, .schedule = Schedule::kZbV}},
      {"pipeline", 2, {.stages = 2, .micro_batches = 4}},
      {"hybrid", 4, {.stages = 2, .micro_batches = 4, .schedule = Schedule::kZbH1}}};
  for (const RecomputedWay& way : ways) {
    const int forwards = way.ranks == 4 ? 8 : 4;
    const std::vector<RecomputedStep> once = steps_of(way, false), twice = steps_of(way, true);
    EXPECT_EQ(losses_in(once), forwards) << way.strategy << ' ' << way.ranks;
    EXPECT_EQ(losses_in(twice), 2 * forwards) << way.strategy << ' ' << way.ranks;
    EXPECT_FALSE(once[0].info.recompute);
    EXPECT_TRUE(twice[0].info.recompute);
    // A loss that is computed twice is counted once.
    EXPECT_GT(once[0].loss, 0);
    EXPECT_EQ(twice[0].loss, once[0].loss) << way.strategy << ' ' << way.ranks;
  }
}

// With gpipe, the first stage holds the activations of all micro-batches.
TEST(TrainerRecompute, HoldsFewerActivations) {
  const RecomputedWay gpipe = {
      "pipeline",
      1,
      {.stages = 2, .micro_batches = 4, .schedule = Schedule::kGPipe, .measure_memory = true}};
  const std::vector<std::int64_t> held = steps_of(gpipe, false)[0].bytes;
  const std::vector<std::int64_t> again = steps_of(gpipe, true)[0].bytes;
  ASSERT_EQ(held.size(), 2U);
  ASSERT_EQ(again.size(), 2U);
  EXPECT_LT(again[0], held[0]);
}

}  // namespace
}  // namespace lockstep::train
