// Which rank and which value are named if a step is not finite, and what a skipped step leaves.
#include <lockstep/train/finite_steps.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>

#include <lockstep/core/error.h>
#include <tests/support/captured_log.h>
#include <tests/support/groups.h>
#include <tests/support/messages.h>
#include <tests/train/trainer/trainer_runs.h>

namespace lockstep::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing_support::CapturedLog;
using testing_support::message_of;
using testing_support::no_errors;
using testing_support::run_group;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One rank's loss, and one of its gradients.
struct RankStep {
  double loss = 1;
  double gradient = 1;
};

FiniteSteps::Step step_of(const RankStep& own) {
  return {.loss = torch::tensor(own.loss, torch::kFloat32),
          .gradients =
              [own] {
                return Tensors{torch::tensor({0.5, own.gradient}, torch::kFloat32),
                               torch::ones({3})};
              },
          .place = "step 3"};
}

// What each rank throws, "" for nothing.
std::vector<std::string> refusals(const std::vector<RankStep>& ranks) {
  return run_group(static_cast<int>(ranks.size()), "shm", [&](ProcessGroup group) {
    at::set_num_threads(1);
    FiniteSteps steps(OnNan::kStop, torch::kCPU);
    const RankStep& own = ranks[static_cast<std::size_t>(group.rank())];
    const bool allowed = steps.allows(step_of(own), group);
    LOCKSTEP_CHECK(allowed, "neither allowed nor refused");
  });
}

TEST(FiniteSteps, NameTheFirstRankAndItsLoss) {
  EXPECT_THAT(refusals({{}, {.loss = kNan}, {.loss = kInfinity}}),
              ElementsAre(StartsWith("Trainer: the loss of rank 1 is not finite in step 3; the run "
                                     "stops before the update of that step; "),
                          StartsWith("Trainer: the loss of rank 1 is nan in step 3; "),
                          StartsWith("Trainer: the loss of rank 1 is not finite in step 3; ")));
  EXPECT_THAT(refusals({{.loss = -kInfinity}, {}}),
              ElementsAre(StartsWith("Trainer: the loss of rank 0 is -inf in step 3; "),
                          StartsWith("Trainer: the loss of rank 0 is not finite in step 3; ")));
}

TEST(FiniteSteps, NameAGradientOnlyIfAllLossesAreFinite) {
  const auto gradient = StartsWith("Trainer: a gradient of rank 1 is not finite in step 3; ");
  EXPECT_THAT(refusals({{}, {.gradient = kNan}, {.gradient = kInfinity}}),
              ElementsAre(gradient, gradient, gradient));
  EXPECT_THAT(refusals({{.gradient = kNan}, {}, {.loss = kInfinity, .gradient = kNan}}),
              ElementsAre(StartsWith("Trainer: the loss of rank 2 is not finite in step 3; "),
                          StartsWith("Trainer: the loss of rank 2 is not finite in step 3; "),
                          StartsWith("Trainer: the loss of rank 2 is inf in step 3; ")));
}

// The 2-norm of these gradients is beyond float32.
TEST(FiniteSteps, AllowLargeValuesThatAreFinite) {
  EXPECT_EQ(refusals({{.loss = 3e38, .gradient = 3e38}, {.loss = -3e38, .gradient = -3e38}}),
            no_errors(2));
}

TEST(FiniteSteps, LookAtGradientsOfEveryKind) {
  const CapturedLog log;
  ProcessGroup group = group_of_one();
  const auto allows = [&](const Tensors& gradients) {
    FiniteSteps steps(OnNan::kSkip, torch::kCPU);
    const FiniteSteps::Step step{
        .loss = torch::ones({}), .gradients = [&] { return gradients; }, .place = "step 1"};
    return steps.allows(step, group);
  };
  const torch::Tensor good = torch::tensor({1.0, -2.0}, torch::kFloat32);
  EXPECT_TRUE(allows({}));
  EXPECT_TRUE(allows({torch::empty({0, 3}), good, good.to_sparse(), torch::complex(good, good)}));
  EXPECT_TRUE(allows({torch::full({9}, 60000, torch::kHalf)})) << "their norm exceeds float16";
  for (const double value : {kNan, kInfinity, -kInfinity}) {
    const torch::Tensor bad = torch::tensor({1.0, value}, torch::kFloat32);
    EXPECT_FALSE(allows({good, bad.to_sparse()})) << value;
    EXPECT_FALSE(allows({torch::complex(good, bad), good})) << value;
    EXPECT_FALSE(allows({good, at::_neg_view(bad)})) << value;
    EXPECT_FALSE(allows({bad.to(torch::kBFloat16), good})) << value;
    EXPECT_FALSE(allows({good, bad.to(torch::kFloat64)})) << value;
    EXPECT_FALSE(allows({good, bad.view({2, 1}).expand({2, 3})})) << value;
  }
}

TEST(FiniteSteps, NameNoRankInOneProcess) {
  ProcessGroup group = group_of_one();
  FiniteSteps steps(OnNan::kStop, torch::kCPU);
  const auto refusal = [&](const FiniteSteps::Step& step) {
    return message_of<Error>([&] { steps.allows(step, group); });
  };
  EXPECT_THAT(refusal(step_of({.loss = kInfinity})), StartsWith("Trainer: the loss is inf in "));
  EXPECT_THAT(refusal(step_of({.gradient = kNan})),
              StartsWith("Trainer: a gradient is not finite in step 3; "));
  FiniteSteps::Step without = step_of({.gradient = kNan});
  without.gradients = {};
  EXPECT_EQ(refusal(without), "nothing was thrown") << "a loss scaler looks at the gradients";
}

TEST(FiniteSteps, WarnOnceOnRank0AndCountOnAllRanks) {
  const CapturedLog log;
  const auto errors = run_group(2, "shm", [](ProcessGroup group) {
    at::set_num_threads(1);
    FiniteSteps steps(OnNan::kSkip, torch::kCPU);
    for (int i = 0; i < 4; ++i) {
      const bool is_bad = i == 1 || i == 2;
      const RankStep own{.loss = is_bad && group.rank() == 1 ? kNan : 1.0};
      LOCKSTEP_CHECK(steps.allows(step_of(own), group) == !is_bad, "step ", i);
    }
    LOCKSTEP_CHECK(steps.skipped() == 2, steps.skipped());
  });
  EXPECT_EQ(errors, no_errors(2));
  EXPECT_THAT(log.lines(),
              ElementsAre(HasSubstr("Trainer: the loss of rank 1 is not finite in step 3; the "
                                    "update of that step is skipped")));
}

// The forward of a skipped step leaves nothing in the buffers, those of other steps stay.
TEST(FiniteSteps, PutBackTheBuffersOfASkippedStep) {
  const CapturedLog log;
  ProcessGroup group = group_of_one();
  torch::nn::Module module("counted");
  const torch::Tensor count = module.register_buffer("count", torch::zeros({}, torch::kInt64));
  const torch::Tensor mean = module.register_buffer("mean", torch::zeros({2}));
  FiniteSteps steps(OnNan::kSkip, torch::kCPU);
  for (int i = 0; i < 5; ++i) {
    steps.begin_step(module);
    count.add_(1);
    mean.fill_(i % 2 == 0 ? i : kNan);
    EXPECT_EQ(steps.allows(step_of({.loss = i % 2 == 0 ? 1.0 : kNan}), group), i % 2 == 0);
    EXPECT_TRUE(mean.equal(torch::full({2}, static_cast<double>(i - i % 2)))) << mean;
  }
  EXPECT_EQ(count.item<int>(), 3);
  EXPECT_EQ(steps.skipped(), 2);
}

TEST(FiniteSteps, NoteTheFirstLossIfTheRunGoesOn) {
  for (const OnNan policy : {OnNan::kWarn, OnNan::kStop, OnNan::kSkip}) {
    const CapturedLog log;
    FiniteSteps steps(policy, torch::kCPU);
    steps.note(1, "step 1");
    steps.note(kInfinity, "step 2");
    steps.note(kNan, "step 3");
    if (policy == OnNan::kWarn) {
      EXPECT_THAT(log.lines(),
                  ElementsAre(HasSubstr("the loss is inf in step 2; the run continues; lower")));
    } else {
      EXPECT_THAT(log.lines(), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace lockstep::train
