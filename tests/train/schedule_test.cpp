#include <lockstep/train/optimization/schedule.h>

#include <gtest/gtest.h>

#include <lockstep/core/error.h>

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
      {{.kind = ScheduleKind::kPlateau, .plateau = {.cooldown = 2, .min_lr = 0.001}},
       "times 0.1 when loss does not fall by 0.0001 of itself in more than 10 evaluations, "
       "cooldown "
       "2, not below 0.001"},
  };
  for (const auto& [options, text] : cases) EXPECT_EQ(to_string(options, 7), text);
}

TEST(Schedule, RefusesImpossibleOptions) {
  for (const ScheduleOptions& options :
       {ScheduleOptions{.warmup_epochs = -1}, ScheduleOptions{.step_epochs = 0},
        ScheduleOptions{.gamma = 0}, ScheduleOptions{.final_fraction = 2},
        ScheduleOptions{.kind = ScheduleKind::kMultiStep}, ScheduleOptions{.milestones = {3, 2}},
        ScheduleOptions{.milestones = {-1}}, ScheduleOptions{.pct_start = 2},
        ScheduleOptions{.div_factor = 0}, ScheduleOptions{.final_div_factor = 0},
        ScheduleOptions{.cycle_momentum = true},
        ScheduleOptions{.kind = ScheduleKind::kOneCycle, .base_momentum = 0.96},
        ScheduleOptions{.kind = ScheduleKind::kOneCycle, .max_momentum = 1},
        ScheduleOptions{.plateau = {.factor = 1}}}) {
    EXPECT_THROW(validate(options), ConfigError);
  }
}

}  // namespace
}  // namespace lockstep::train
