// The learning rate, and the momentum if it is scheduled, as pure functions of the step: a resumed
// run needs no state for them. The only exception is kPlateau, whose state is kept by plateau.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/train/task/optimizer_configuration.h>
#include <lockstep/train/task/plateau.h>

namespace lockstep {

enum class ScheduleKind {
  kConstant,   ///< the base rate (the optimizer's `lr`)
  kStep,       ///< base rate, multiplied by `gamma` every `step_epochs` epochs
  kMultiStep,  ///< base rate, multiplied by `gamma` at each of `milestones`
  kCosine,     ///< half a cosine from the base rate down to `final_fraction` of it
  kOneCycle,   ///< up to the base rate and down again
  kPlateau,    ///< base rate, multiplied by PlateauOptions::factor when a value stops improving
};

/// The curve of a one-cycle schedule.
enum class Anneal { kCosine, kLinear };

struct LOCKSTEP_API ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  double warmup_epochs = 0;          ///< linear warmup to the schedule's rate, for any kind
  double step_epochs = 1;            ///< kStep
  double gamma = 0.1;                ///< kStep, kMultiStep
  double final_fraction = 0;         ///< kCosine
  std::vector<double> milestones{};  ///< kMultiStep: epochs since the beginning, ascending
  double pct_start = 0.3;            ///< kOneCycle: share of its steps in which the rate rises
  double div_factor = 25;            ///< kOneCycle: initial rate is base rate / div_factor
  double final_div_factor = 1e4;     ///< kOneCycle: final rate is initial rate / final_div_factor
  Anneal anneal = Anneal::kCosine;   ///< kOneCycle
  /// kOneCycle: the momentum falls from `max_momentum` to `base_momentum` while the rate rises, and
  /// then rises again. For Adam and AdamW it is beta1; SGD must have a momentum above 0. PyTorch's
  /// default is true.
  bool cycle_momentum = false;
  double base_momentum = 0.85;  ///< kOneCycle with cycle_momentum
  double max_momentum = 0.95;   ///< kOneCycle with cycle_momentum; below 1
  PlateauOptions plateau{};     ///< kPlateau
};

/// Throws ConfigError for invalid options.
LOCKSTEP_API void validate(const ScheduleOptions& options);

/// The factor applied to the base learning rate in optimizer step `step`, counted from 0 over all
/// epochs, in a run of `total_steps` with `steps_per_epoch`. `total_steps` is the length of the
/// schedule; the run may end earlier.
///
/// With w = warmup steps, the factor is (step + 1) / w while step < w, as in PyTorch's LinearLR.
/// Afterwards, with progress p = (step - w) / (total_steps - w), it is f + (1 - f) (1 + cos(pi p))
/// / 2 for kCosine, where f is the final fraction; gamma ^ floor(epoch / step_epochs) for kStep;
/// and gamma ^ (number of milestones <= epoch) for kMultiStep, with epoch = step / steps_per_epoch.
/// For kOneCycle it follows OneCycleLR over the remaining total_steps - w steps. For
/// kPlateau it is 1: the Trainer uses PlateauSchedule's rate instead of the base rate.
LOCKSTEP_API double learning_rate_factor(const ScheduleOptions& options, std::int64_t step,
                                         std::int64_t steps_per_epoch, std::int64_t total_steps);

/// The momentum of optimizer step `step`, as OneCycleLR sets it, for Optimizer::set_momentum(). It
/// is max_momentum during the warm-up. Returns std::nullopt if the schedule does not change the
/// momentum.
LOCKSTEP_API std::optional<double> scheduled_momentum(const ScheduleOptions& options,
                                                      std::int64_t step,
                                                      std::int64_t steps_per_epoch,
                                                      std::int64_t total_steps);

/// learning_rate_factor() as a function, for ConfiguredOptimizer::schedules. Throws ConfigError for
/// invalid options, kPlateau and cycle_momentum, which change more than a function of the step.
LOCKSTEP_API LearningRateFactor schedule_function(const ScheduleOptions& options);

/// The names of the kinds: "constant", "step", "multi-step", "cosine", "one-cycle", "plateau".
LOCKSTEP_API const std::vector<std::string>& learning_rate_schedule_names();

/// The kind with that name. Throws ConfigError for an unknown name.
LOCKSTEP_API ScheduleKind parse_schedule(const std::string& name);

/// Describes the schedule of a run of `max_epochs` epochs as text, for comparison: "cosine to 0
/// over 10 epochs".
LOCKSTEP_API std::string to_string(const ScheduleOptions& options, std::int64_t max_epochs);

}  // namespace lockstep
