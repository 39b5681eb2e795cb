// The options of `lockstep train` about the schedule of the learning rate, checked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/train/optimization/schedule.h>

namespace lockstep {

/// As the user gave them; absent where the recipe's default counts.
struct ScheduleArguments {
  std::vector<std::string> schedules;  ///< for the learning rate, and for a pipeline
  std::optional<double> step_epochs;
  std::optional<std::string> milestones;
  std::optional<double> gamma;
  std::optional<double> pct_start;
  std::optional<double> div_factor;
  std::optional<double> final_div_factor;
  bool cycle_momentum = false;
  std::optional<double> base_momentum;
  std::optional<double> max_momentum;
  std::optional<std::string> plateau;
  std::optional<double> warmup_epochs;
};

/// The values of --schedule for the learning rate and for a pipeline.
struct Schedules {
  std::optional<std::string> of_learning_rate;
  std::optional<std::string> of_pipeline;
};

/// ConfigError for a name that neither kind of schedule has, and for two of one kind.
Schedules told_apart(const std::vector<std::string>& given);

/// `schedule`, that of the recipe, changed by the options. ConfigError names the option.
ScheduleOptions resolve_schedule(const ScheduleArguments& arguments, ScheduleOptions schedule);

}  // namespace lockstep
