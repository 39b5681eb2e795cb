// The learning rate as a pure function of the step: a resumed run needs no state of it.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class ScheduleKind {
  kConstant,  ///< the base rate
  kStep,      ///< times `gamma` after every `step_epochs`
  kCosine,    ///< half a cosine from the base rate down to `final_fraction` of it
};

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  double warmup_epochs = 0;   ///< first rises linearly to the base rate, for any kind
  double step_epochs = 1;     ///< kStep
  double gamma = 0.1;         ///< kStep
  double final_fraction = 0;  ///< kCosine
};

/// ConfigError for options that cannot be.
void validate(const ScheduleOptions& options);

/// The factor on the base learning rate for optimizer step `step`, counted from 0 over all epochs,
/// in a run of `total_steps` with `steps_per_epoch`. The run may end before: its length is that of
/// the schedule.
///
/// With w = warmup steps: (step + 1) / w while step < w. Then, with progress
/// p = (step - w) / (total_steps - w): cosine is f + (1 - f) (1 + cos(pi p)) / 2 with f the final
/// fraction; step is gamma ^ floor(epoch / step_epochs), its epochs counted from the run's start.
double learning_rate_factor(const ScheduleOptions& options, std::int64_t step,
                            std::int64_t steps_per_epoch, std::int64_t total_steps);

/// "constant", "step" or "cosine"; ConfigError for another word.
ScheduleKind parse_schedule(const std::string& name);

/// What sets the schedule of a run of `max_epochs` apart from others: "cosine to 0 over 10 epochs".
std::string to_string(const ScheduleOptions& options, std::int64_t max_epochs);

}  // namespace lockstep
