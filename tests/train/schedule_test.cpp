#include <lockstep/train/optimization/schedule.h>

#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>

namespace lockstep::train {
namespace {

TEST(Schedule, HasTheStatedFactors) {
  struct Case {
    const char* name;
    ScheduleOptions options;
    std::int64_t step;
    double factor;
  };
  // Ten steps per epoch, a hundred in all.
  const ScheduleOptions step{.kind = ScheduleKind::kStep, .step_epochs = 3, .gamma = 0.1};
  const ScheduleOptions cosine{.kind = ScheduleKind::kCosine};
  const ScheduleOptions floor{.kind = ScheduleKind::kCosine, .final_fraction = 0.2};
  const ScheduleOptions warm{.kind = ScheduleKind::kCosine, .warmup_epochs = 2};
  const ScheduleOptions warm_constant{.warmup_epochs = 0.5};
  const Case cases[] = {
      {"constant begins", {}, 0, 1},
      {"constant ends", {}, 99, 1},
      {"step before", step, 29, 1},
      {"step after", step, 30, 0.1},
      {"step twice", step, 65, 0.01},
      {"cosine begins", cosine, 0, 1},
      {"cosine half", cosine, 50, 0.5},
      {"cosine quarter", cosine, 25, 0.85355339059},
      {"cosine is past its end", cosine, 130, 0},
      {"cosine with a floor", floor, 50, 0.6},
      {"cosine ends on its floor", floor, 100, 0.2},
      {"warm-up begins", warm, 0, 0.05},
      {"warm-up ends", warm, 19, 1},
      {"cosine after warm-up", warm, 20, 1},
      {"cosine half after warm-up", warm, 60, 0.5},
      {"warm-up of half an epoch", warm_constant, 1, 0.4},
      {"constant after warm-up", warm_constant, 5, 1},
  };
  for (const Case& c : cases) {
    EXPECT_NEAR(learning_rate_factor(c.options, c.step, 10, 100), c.factor, 1e-9) << c.name;
  }
}

// By whole numbers: after n = epochs * steps_per_epoch / 60 steps, in units of 1/60 epoch.
TEST(Schedule, FallsInTheStepThatReachesAFractionOfAnEpoch) {
  for (const std::int64_t steps_per_epoch : {1, 3, 7, 10, 12, 30, 391}) {
    for (const std::int64_t sixtieths : {1, 4, 6, 7, 18, 20, 42, 59, 60, 66, 90, 420}) {
      const double epochs = static_cast<double>(sixtieths) / 60;
      const ScheduleOptions step{.kind = ScheduleKind::kStep, .step_epochs = epochs, .gamma = 0.5};
      ScheduleOptions multi_step{.kind = ScheduleKind::kMultiStep, .gamma = 0.5};
      for (int fall = 1; fall <= 40; ++fall) multi_step.milestones.push_back(epochs * fall);
      for (std::int64_t i = 0; i < 40; ++i) {
        const std::int64_t falls = i * 60 / (sixtieths * steps_per_epoch);
        const double expected = std::pow(0.5, static_cast<double>(falls));
        EXPECT_EQ(learning_rate_factor(step, i, steps_per_epoch, 100), expected)
            << i << ' ' << steps_per_epoch << ' ' << sixtieths;
        if (falls > 40) continue;
        EXPECT_EQ(learning_rate_factor(multi_step, i, steps_per_epoch, 100), expected)
            << i << ' ' << steps_per_epoch << ' ' << sixtieths;
      }
    }
  }
}

// The rate rises to the base rate and then begins its cycle at a 25th of it.
TEST(Schedule, CyclesAfterTheWarmUp) {
  const ScheduleOptions linear{
      .kind = ScheduleKind::kOneCycle, .warmup_epochs = 2, .anneal = Anneal::kLinear};
  // 80 steps are left: the rate rises to step 20 + 0.3 * 80 - 1 and falls to the last step.
  const std::pair<std::int64_t, double> cases[] = {{0, 0.05},      {9, 0.5},
                                                   {19, 1},        {20, 1 / 25.0},
                                                   {43, 1},        {71, (1 + 1 / 25.0 / 1e4) / 2},
                                                   {99, 1 / 25e4}, {130, 1 / 25e4}};
  for (const auto& [step, factor] : cases) {
    EXPECT_NEAR(learning_rate_factor(linear, step, 10, 100), factor, 1e-12) << step;
  }
}

// A cosine runs from 1/25 to 1 up to the turning point, step 10, and to 1/25e4 up to step 19.
TEST(Schedule, CyclesAlongCosines) {
  const ScheduleOptions cycle{.kind = ScheduleKind::kOneCycle, .pct_start = 0.55};
  const double last = 1 / 25e4;
  const std::pair<std::int64_t, double> cases[] = {{0, 0.04},
                                                   {5, 0.52},
                                                   {10, 1},
                                                   {13, last + (1 - last) * 0.75},
                                                   {16, last + (1 - last) * 0.25},
                                                   {19, last},
                                                   {25, last}};
  for (const auto& [step, factor] : cases) {
    EXPECT_NEAR(learning_rate_factor(cycle, step, 10, 20), factor, 1e-12) << step;
  }
  ScheduleOptions divided = cycle;
  divided.div_factor = 4;
  divided.final_div_factor = 10;
  EXPECT_NEAR(learning_rate_factor(divided, 0, 10, 20), 0.25, 1e-12);
  EXPECT_NEAR(learning_rate_factor(divided, 19, 10, 20), 0.025, 1e-12);
}

// The turning point may be the first step, lie before it, or be the last step.
TEST(Schedule, CyclesWhereverItTurns) {
  ScheduleOptions cycle{.kind = ScheduleKind::kOneCycle,
                        .pct_start = 0.125,
                        .anneal = Anneal::kLinear,
                        .cycle_momentum = true};
  const double last = 1 / 25e4;
  const auto rate = [&](std::int64_t step, std::int64_t steps) {
    return learning_rate_factor(cycle, step, 10, steps);
  };
  const auto momentum = [&](std::int64_t step, std::int64_t steps) {
    return scheduled_momentum(cycle, step, 10, steps).value();
  };
  EXPECT_NEAR(rate(0, 8), 1, 1e-12) << "it turns in step 0";
  EXPECT_NEAR(momentum(0, 8), 0.85, 1e-12);
  EXPECT_NEAR(rate(7, 8), last, 1e-12);
  EXPECT_NEAR(momentum(7, 8), 0.95, 1e-12);
  cycle.pct_start = 0;
  EXPECT_NEAR(rate(0, 4), 1 + (last - 1) / 4, 1e-12) << "it turns one step before the first";
  EXPECT_NEAR(rate(3, 4), last, 1e-12);
  EXPECT_NEAR(rate(0, 1), last, 1e-12) << "the only step is the last one";
  EXPECT_NEAR(momentum(0, 1), 0.95, 1e-12);
  cycle.pct_start = 1;
  EXPECT_NEAR(rate(0, 4), 0.04, 1e-12);
  EXPECT_NEAR(rate(3, 4), 1, 1e-12) << "it turns in the last step";
  EXPECT_NEAR(rate(9, 4), 1, 1e-12);
  EXPECT_NEAR(momentum(3, 4), 0.85, 1e-12);
  cycle.warmup_epochs = 2;
  EXPECT_NEAR(rate(25, 20), 1, 1e-12) << "the warm-up leaves no step to the cycle";
}

// Epochs count from the beginning of the run, in which the warm-up only hides the first falls.
TEST(Schedule, FallsAtTheSameEpochsAfterAWarmUp) {
  const ScheduleOptions step{
      .kind = ScheduleKind::kStep, .warmup_epochs = 2, .step_epochs = 3, .gamma = 0.1};
  const ScheduleOptions often{
      .kind = ScheduleKind::kStep, .warmup_epochs = 2, .step_epochs = 0.5, .gamma = 0.5};
  const ScheduleOptions multi_step{.kind = ScheduleKind::kMultiStep,
                                   .warmup_epochs = 2,
                                   .gamma = 0.1,
                                   .milestones = {1, 2.5, 4}};
  for (const ScheduleOptions& each : {step, often, multi_step}) {
    EXPECT_NEAR(learning_rate_factor(each, 0, 10, 100), 0.05, 1e-12);
    EXPECT_NEAR(learning_rate_factor(each, 19, 10, 100), 1, 1e-12);
  }
  const std::pair<std::int64_t, double> of_step[] = {{20, 1}, {29, 1}, {30, 0.1}, {60, 0.01}};
  for (const auto& [at, factor] : of_step) {
    EXPECT_NEAR(learning_rate_factor(step, at, 10, 100), factor, 1e-12) << at;
  }
  EXPECT_NEAR(learning_rate_factor(often, 20, 10, 100), 1 / 16.0, 1e-12) << "four half epochs";
  EXPECT_NEAR(learning_rate_factor(often, 24, 10, 100), 1 / 16.0, 1e-12);
  EXPECT_NEAR(learning_rate_factor(often, 25, 10, 100), 1 / 32.0, 1e-12);
  const std::pair<std::int64_t, double> of_multi_step[] = {{20, 0.1},  {24, 0.1},   {25, 0.01},
                                                           {39, 0.01}, {40, 0.001}, {99, 0.001}};
  for (const auto& [at, factor] : of_multi_step) {
    EXPECT_NEAR(learning_rate_factor(multi_step, at, 10, 100), factor, 1e-12) << at;
  }
}

TEST(Schedule, RoundsTheWarmUpToSteps) {
  EXPECT_NEAR(learning_rate_factor({.warmup_epochs = 0.25}, 0, 10, 100), 1 / 3.0, 1e-12);
  EXPECT_NEAR(learning_rate_factor({.warmup_epochs = 0.24}, 0, 10, 100), 1 / 2.0, 1e-12);
  const ScheduleOptions cosine{.kind = ScheduleKind::kCosine, .warmup_epochs = 2};
  EXPECT_EQ(learning_rate_factor(cosine, 19, 10, 20), 1);
  EXPECT_EQ(learning_rate_factor(cosine, 20, 10, 20), 1) << "no step is left for the cosine";
  EXPECT_NEAR(learning_rate_factor(cosine, 21, 10, 20), 0, 1e-12);
  const ScheduleOptions plateau{.kind = ScheduleKind::kPlateau, .warmup_epochs = 1};
  EXPECT_NEAR(learning_rate_factor(plateau, 4, 10, 100), 0.5, 1e-12);
  EXPECT_EQ(learning_rate_factor(plateau, 10, 10, 100), 1);
}

TEST(Schedule, MovesTheMomentumOnlyInACycle) {
  EXPECT_FALSE(scheduled_momentum({}, 0, 10, 100));
  EXPECT_FALSE(scheduled_momentum({.kind = ScheduleKind::kOneCycle}, 0, 10, 100));
  const ScheduleOptions cycle{
      .kind = ScheduleKind::kOneCycle, .warmup_epochs = 2, .cycle_momentum = true};
  const std::pair<std::int64_t, double> cases[] = {{0, 0.95},  {19, 0.95}, {20, 0.95},
                                                   {43, 0.85}, {99, 0.95}, {130, 0.95}};
  for (const auto& [step, momentum] : cases) {  // the learning rate peaks in step 20 + 0.3 * 80 - 1
    EXPECT_NEAR(scheduled_momentum(cycle, step, 10, 100).value(), momentum, 1e-12) << step;
  }
}

// However few steps are left for the cycle, even none.
TEST(Schedule, HasTheLargestMomentumDuringTheWarmUp) {
  const ScheduleOptions cycle{
      .kind = ScheduleKind::kOneCycle, .warmup_epochs = 2, .cycle_momentum = true};
  for (std::int64_t total = 1; total < 40; ++total) {
    for (std::int64_t step = 0; step < 20; ++step) {
      EXPECT_EQ(scheduled_momentum(cycle, step, 10, total).value(), 0.95) << step << ' ' << total;
      EXPECT_EQ(learning_rate_factor(cycle, step, 10, total), static_cast<double>(step + 1) / 20)
          << step << ' ' << total;
    }
  }
}

TEST(Schedule, ParsesItsNames) {
  EXPECT_EQ(parse_schedule("constant"), ScheduleKind::kConstant);
  EXPECT_EQ(parse_schedule("step"), ScheduleKind::kStep);
  EXPECT_EQ(parse_schedule("cosine"), ScheduleKind::kCosine);
  EXPECT_EQ(parse_schedule("multi-step"), ScheduleKind::kMultiStep);
  EXPECT_EQ(parse_schedule("one-cycle"), ScheduleKind::kOneCycle);
  EXPECT_EQ(parse_schedule("plateau"), ScheduleKind::kPlateau);
  EXPECT_EQ(learning_rate_schedule_names().size(), 6U);
  EXPECT_THROW(parse_schedule("linear"), ConfigError);
}

TEST(Schedule, IsDescribedByWhatItDependsOn) {
  const std::pair<ScheduleOptions, const char*> cases[] = {
      {{}, "constant"},
      {{.warmup_epochs = 0.5}, "constant after 0.5 of warm-up"},
      {{.kind = ScheduleKind::kStep, .step_epochs = 3}, "times 0.1 every 3 epochs"},
      {{.kind = ScheduleKind::kCosine}, "cosine to 0 over 7 epochs"},
      {{.kind = ScheduleKind::kMultiStep, .milestones = {3, 4.5}}, "times 0.1 at epochs 3, 4.5"},
      {{.kind = ScheduleKind::kOneCycle, .anneal = Anneal::kLinear},
       "one-cycle over 7 epochs, rising for 0.3 of them, divided by 25 and 10000, linear"},
      {{.kind = ScheduleKind::kOneCycle, .cycle_momentum = true},
       "one-cycle over 7 epochs, rising for 0.3 of them, divided by 25 and 10000, momentum from "
       "0.95 "
       "to 0.85 and back"},
      {{.kind = ScheduleKind::kCosine, .final_fraction = 0.25}, "cosine to 0.25 over 7 epochs"},
      {{.kind = ScheduleKind::kPlateau,
        .warmup_epochs = 1,
        .plateau = {.monitor = "accuracy",
                    .mode = MetricGoal::kMax,
                    .factor = 0.5,
                    .patience = 2,
                    .threshold = 0.01,
                    .threshold_mode = ThresholdMode::kAbsolute}},
       "times 0.5 when accuracy does not rise by 0.01 in more than 2 evaluations after 1 of "
       "warm-up"},
      {{.kind = ScheduleKind::kPlateau, .plateau = {.cooldown = 2, .min_lr = 0.001}},
       "times 0.1 when loss does not fall by 0.0001 of itself in more than 10 evaluations, "
       "cooldown "
       "2, not below 0.001"},
  };
  for (const auto& [options, text] : cases) EXPECT_EQ(to_string(options, 7), text);
}

TEST(Schedule, RefusesImpossibleOptions) {
  for (const ScheduleOptions& options :
       {ScheduleOptions{.warmup_epochs = -1},
        ScheduleOptions{.step_epochs = 0},
        ScheduleOptions{.gamma = 0},
        ScheduleOptions{.final_fraction = 2},
        ScheduleOptions{.kind = ScheduleKind::kMultiStep},
        ScheduleOptions{.milestones = {3, 2}},
        ScheduleOptions{.milestones = {-1}},
        ScheduleOptions{.pct_start = 2},
        ScheduleOptions{.div_factor = 0},
        ScheduleOptions{.final_div_factor = 0},
        ScheduleOptions{.cycle_momentum = true},
        ScheduleOptions{.kind = ScheduleKind::kOneCycle, .base_momentum = 0.96},
        ScheduleOptions{.kind = ScheduleKind::kOneCycle, .max_momentum = 1},
        ScheduleOptions{.plateau = {.factor = 1}},
        ScheduleOptions{.warmup_epochs = -0.5},
        ScheduleOptions{.step_epochs = -1},
        ScheduleOptions{.gamma = -0.1},
        ScheduleOptions{.final_fraction = -0.1},
        ScheduleOptions{.final_fraction = 1.1},
        ScheduleOptions{.milestones = {1.1e9}},
        ScheduleOptions{.milestones = {1, 3, 2}},
        ScheduleOptions{.pct_start = -0.1},
        ScheduleOptions{.pct_start = 1.1},
        ScheduleOptions{.div_factor = -1},
        ScheduleOptions{.final_div_factor = -1},
        ScheduleOptions{.base_momentum = -0.1},
        ScheduleOptions{.max_momentum = 1.5}}) {
    EXPECT_THROW(validate(options), ConfigError);
  }
  for (const ScheduleOptions& options :
       {ScheduleOptions{}, ScheduleOptions{.step_epochs = 0.1}, ScheduleOptions{.gamma = 2},
        ScheduleOptions{.final_fraction = 1}, ScheduleOptions{.milestones = {0, 1e9}},
        ScheduleOptions{.kind = ScheduleKind::kMultiStep, .milestones = {1}},
        ScheduleOptions{.pct_start = 0}, ScheduleOptions{.pct_start = 1},
        ScheduleOptions{.div_factor = 0.5, .final_div_factor = 0.5},
        ScheduleOptions{.base_momentum = 0, .max_momentum = 0},
        ScheduleOptions{.base_momentum = 0.99, .max_momentum = 0.99},
        ScheduleOptions{.kind = ScheduleKind::kOneCycle, .cycle_momentum = true}}) {
    EXPECT_NO_THROW(validate(options));
  }
  const std::pair<ScheduleOptions, const char*> messages[] = {
      {{.warmup_epochs = -1}, "warmup_epochs must be at least 0, got -1"},
      {{.step_epochs = 0}, "step_epochs must be greater than 0, got 0"},
      {{.gamma = -0.5}, "gamma must be greater than 0, got -0.5"},
      {{.final_fraction = 2}, "final_fraction must be from 0 to 1, got 2"},
      {{.kind = ScheduleKind::kMultiStep},
       "multi-step needs milestones, the epochs at which the rate falls"},
      {{.milestones = {-1}}, "a milestone must be from 0 to 1000000000, got -1"},
      {{.milestones = {3, 2.5}}, "milestones must ascend, got 3, 2.5"},
      {{.pct_start = 2}, "pct_start must be from 0 to 1, got 2"},
      {{.div_factor = 0}, "div_factor must be greater than 0, got 0"},
      {{.final_div_factor = 0}, "final_div_factor must be greater than 0, got 0"},
      {{.cycle_momentum = true}, "cycle_momentum belongs to the kind one-cycle"},
      {{.base_momentum = 0.96}, "base_momentum must be from 0 to 0.95, got 0.96"},
      {{.max_momentum = 1.5}, "max_momentum must be from 0 to 1, got 1.5"},
      {{.max_momentum = 1}, "max_momentum must be below 1, got 1"},
      {{.plateau = {.factor = 1}}, "factor must be below 1, got 1"}};
  for (const auto& [options, message] : messages) {
    EXPECT_EQ(testing_support::message_of<ConfigError>([&, &o = options] { validate(o); }),
              std::string("schedule: ") + message);
  }
  EXPECT_NO_THROW(validate(ScheduleOptions{.milestones = {2, 2}}));
}

}  // namespace
}  // namespace lockstep::train
