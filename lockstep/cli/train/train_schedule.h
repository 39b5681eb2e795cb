// The checked options of `lockstep train` for the learning rate's schedule.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <lockstep/train/optimization/schedule.h>

namespace lockstep::cli {

/// The options as given by the user; absent: the recipe's default.
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

  bool operator==(const ScheduleArguments&) const = default;
};

/// The values of --schedule for the learning rate and for a pipeline.
struct Schedules {
  std::optional<std::string> of_learning_rate;
  std::optional<std::string> of_pipeline;
};

/// Sorts the values of --schedule by kind; the last of each kind counts. Throws ConfigError for a
/// name that neither kind of schedule has.
Schedules told_apart(const std::vector<std::string>& given);

/// The recipe's `schedule`, modified by the options. Throws ConfigError, which names the option.
ScheduleOptions resolve_schedule(const ScheduleArguments& arguments, ScheduleOptions schedule);

}  // namespace lockstep::cli
