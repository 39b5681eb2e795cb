// Schedules, clipping and the moving average of the weights, compared with PyTorch over 100 steps.
// make_golden_training.py defines the cases.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/core/error.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/train/checkpoints/model_ema.h>
#include <lockstep/train/optimization/schedule.h>

namespace lockstep::train {
namespace {

using Numbers = std::vector<double>;

constexpr std::int64_t kGoldenSteps = 100;
constexpr std::int64_t kGoldenStepsPerEpoch = 10;

// The numbers of each line, keyed by the words before them.
std::map<std::string, Numbers> golden_training() {
  std::map<std::string, Numbers> all;
  std::ifstream file(LOCKSTEP_GOLDEN_TRAINING);
  for (std::string line; std::getline(file, line);) {
    std::size_t at = line.find_first_of("0123456789");
    if (at > 0 && line[at - 1] == '-') --at;
    Numbers& numbers = all[line.substr(0, at - 1)];
    for (const char* next = line.c_str() + at; *next != '\0';) {
      double number = 0;
      next = std::from_chars(next, line.c_str() + line.size(), number).ptr;
      numbers.push_back(number);
      if (*next == ' ') ++next;
    }
  }
  return all;
}

void expect_near_golden(const Numbers& got, const std::string& name, double tolerance) {
  static const std::map<std::string, Numbers> all = golden_training();
  ASSERT_TRUE(all.contains(name)) << name;
  const Numbers& expected = all.at(name);
  ASSERT_EQ(got.size(), expected.size()) << name;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], tolerance) << name << " " << i;
  }
}

TEST(GoldenTraining, SchedulesAreThoseOfPyTorch) {
  struct Case {
    const char* name;
    ScheduleOptions options;
  };
  const Case cases[] = {
      {"constant", {}},
      {"step", {.kind = ScheduleKind::kStep, .step_epochs = 3, .gamma = 0.3}},
      {"multi-step", {.kind = ScheduleKind::kMultiStep, .gamma = 0.2, .milestones = {2, 5, 6}}},
      {"cosine", {.kind = ScheduleKind::kCosine, .final_fraction = 0.1}},
      {"warm-up and cosine", {.kind = ScheduleKind::kCosine, .warmup_epochs = 2}},
      {"warm-up and constant", {.warmup_epochs = 0.5}},
      {"one-cycle", {.kind = ScheduleKind::kOneCycle}},
      {"one-cycle, linear",
       {.kind = ScheduleKind::kOneCycle,
        .pct_start = 0.25,
        .div_factor = 10,
        .final_div_factor = 100,
        .anneal = Anneal::kLinear}},
      {"step every tenth of an epoch",
       {.kind = ScheduleKind::kStep, .step_epochs = 0.1, .gamma = 0.97}},
      {"step after three steps", {.kind = ScheduleKind::kStep, .step_epochs = 0.3, .gamma = 0.9}},
      {"step after seven steps", {.kind = ScheduleKind::kStep, .step_epochs = 0.7, .gamma = 0.5}},
      {"multi-step within epochs",
       {.kind = ScheduleKind::kMultiStep, .gamma = 0.3, .milestones = {0.3, 0.7, 1.1, 2.3, 5.7}}},
      {"warm-up and one-cycle", {.kind = ScheduleKind::kOneCycle, .warmup_epochs = 1.5}},
  };
  for (const Case& c : cases) {
    validate(c.options);
    Numbers rates;
    for (std::int64_t step = 0; step < kGoldenSteps; ++step) {
      rates.push_back(0.5 *
                      learning_rate_factor(c.options, step, kGoldenStepsPerEpoch, kGoldenSteps));
    }
    expect_near_golden(rates, c.name, 1e-13);
  }
}

TEST(GoldenTraining, MomentaAreThoseOfPyTorch) {
  struct Case {
    const char* name;
    ScheduleOptions options;
  };
  const Case cases[] = {
      {"one-cycle momentum", {.kind = ScheduleKind::kOneCycle, .cycle_momentum = true}},
      {"one-cycle momentum, linear",
       {.kind = ScheduleKind::kOneCycle,
        .pct_start = 0.25,
        .anneal = Anneal::kLinear,
        .cycle_momentum = true,
        .base_momentum = 0.7,
        .max_momentum = 0.9}},
      {"warm-up and one-cycle momentum",
       {.kind = ScheduleKind::kOneCycle, .warmup_epochs = 1.5, .cycle_momentum = true}},
      {"long warm-up and one-cycle momentum",
       {.kind = ScheduleKind::kOneCycle, .warmup_epochs = 9.7, .cycle_momentum = true}}};
  for (const Case& c : cases) {
    validate(c.options);
    Numbers momenta;
    for (std::int64_t step = 0; step < kGoldenSteps; ++step) {
      momenta.push_back(
          scheduled_momentum(c.options, step, kGoldenStepsPerEpoch, kGoldenSteps).value_or(-1));
    }
    expect_near_golden(momenta, c.name, 1e-13);
  }
}

// The formula of make_golden_training.py.
double watched_golden(std::int64_t step) {
  const auto s = static_cast<double>(step);
  return 2.0 / (1 + std::min(s, 30.0)) + 0.01 * std::sin(s) + (step % 17 == 16 ? 0.5 : 0.0);
}

TEST(GoldenTraining, PlateausAreThoseOfPyTorch) {
  struct Case {
    const char* name;
    PlateauOptions options;
  };
  const Case cases[] = {
      {"plateau", {.factor = 0.5, .patience = 4}},
      {"plateau, absolute",
       {.factor = 0.3,
        .patience = 2,
        .threshold = 0.05,
        .threshold_mode = ThresholdMode::kAbsolute,
        .cooldown = 6,
        .min_lr = 0.02}},
      {"plateau, rising",
       {.mode = MetricGoal::kMax, .factor = 0.7, .patience = 3, .threshold = 0.01, .eps = 0.01}},
  };
  for (const Case& c : cases) {
    validate(c.options);
    const double sign = c.options.mode == MetricGoal::kMax ? -1 : 1;
    PlateauSchedule schedule(c.options, 0.5);
    Numbers rates;
    for (std::int64_t step = 0; step < kGoldenSteps; ++step) {
      rates.push_back(schedule.lr());
      // A schedule that is resumed after each step continues exactly.
      PlateauSchedule resumed(c.options, 0.5);
      resumed.restore(schedule.state());
      resumed.step(sign * watched_golden(step));
      schedule = resumed;
    }
    expect_near_golden(rates, c.name, 0);
    EXPECT_LT(rates.back(), 0.5) << c.name << " must fall";
  }
}

// The weights, or their moving averages, after every tenth step.
struct GoldenRun {
  std::function<void(const Tensors&)> clip = [](const Tensors&) {};
  std::optional<double> decay{};
  OptimizerOptions optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9};
  ScheduleOptions schedule{};
};

Numbers train_as_golden(const GoldenRun& run) {
  torch::nn::Linear net(3, 2);
  net->to(torch::kFloat64);
  {
    const torch::NoGradGuard no_grad;
    net->weight.copy_(torch::arange(6, torch::kFloat64).mul(0.7).sin().view({2, 3}));
    net->bias.copy_(torch::tensor({0.25, -0.5}, torch::kFloat64));
  }
  std::optional<ModelEma> ema;
  if (run.decay) ema.emplace(*net, *run.decay);
  Optimizer optimizer(*net, run.optimizer);
  Numbers numbers;
  for (int step = 0; step < kGoldenSteps; ++step) {
    const auto x = (torch::arange(12, torch::kFloat64) + step).mul(0.3).sin().view({4, 3});
    const auto y = (torch::arange(8, torch::kFloat64) - step).mul(0.2).cos().view({4, 2});
    optimizer.scale_lr(
        learning_rate_factor(run.schedule, step, kGoldenStepsPerEpoch, kGoldenSteps));
    const auto momentum =
        scheduled_momentum(run.schedule, step, kGoldenStepsPerEpoch, kGoldenSteps);
    if (momentum) optimizer.set_momentum(*momentum);
    optimizer.zero_grad();
    at::mse_loss(net->forward(x), y).mul(10).backward();
    run.clip(optimizer.parameters());
    optimizer.step();
    if (ema) ema->update();
    if (step % 10 != 9) continue;
    const AveragedWeights averaged(ema ? &*ema : nullptr);
    for (const torch::Tensor& parameter : {net->weight, net->bias}) {
      const torch::Tensor flat = parameter.detach().flatten();
      for (std::int64_t i = 0; i < flat.numel(); ++i) numbers.push_back(flat[i].item<double>());
    }
  }
  return numbers;
}

TEST(GoldenTraining, ClippingIsThatOfPyTorch) {
  expect_near_golden(
      train_as_golden({.clip = [](const Tensors& all) { clip_grad_norm_(all, 0.7); }}),
      "clipped by norm", 1e-12);
  expect_near_golden(
      train_as_golden({.clip = [](const Tensors& all) { clip_grad_value_(all, 0.3); }}),
      "clipped by value", 1e-12);
}

TEST(GoldenTraining, AveragesAreThoseOfPyTorch) {
  expect_near_golden(train_as_golden({.decay = 0.9}), "averaged", 1e-12);
  expect_near_golden(train_as_golden({.decay = 0.999}), "averaged slowly", 1e-12);
}

TEST(GoldenTraining, OneCyclesWithMomentumAreThoseOfPyTorch) {
  const ScheduleOptions cycle = {.kind = ScheduleKind::kOneCycle, .cycle_momentum = true};
  expect_near_golden(
      train_as_golden({.optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true},
                       .schedule = cycle}),
      "trained by one-cycle with sgd", 1e-10);
  expect_near_golden(train_as_golden({.optimizer = AdamOptions{.lr = 0.05}, .schedule = cycle}),
                     "trained by one-cycle with adam", 1e-10);
}

}  // namespace
}  // namespace lockstep::train
