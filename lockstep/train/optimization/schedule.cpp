#include <lockstep/train/optimization/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {
namespace {

const detail::NamedValues<ScheduleKind>& named_kinds() {
  static const detail::NamedValues<ScheduleKind> all = {
      {"constant", ScheduleKind::kConstant},    {"step", ScheduleKind::kStep},
      {"multi-step", ScheduleKind::kMultiStep}, {"cosine", ScheduleKind::kCosine},
      {"one-cycle", ScheduleKind::kOneCycle},   {"plateau", ScheduleKind::kPlateau}};
  return all;
}

// `value`, or the whole number that it misses only because fractions such as 0.1 are rounded:
// 0.3 / 0.1 is slightly less than 3.
double without_rounding(double value) {
  constexpr double kRelativeError = 1e-12;
  const double whole = std::round(value);
  return std::abs(value - whole) <= kRelativeError * std::max(whole, 1.0) ? whole : value;
}

double step_factor(const ScheduleOptions& options, std::int64_t step,
                   std::int64_t steps_per_epoch) {
  const double interval = options.step_epochs * static_cast<double>(steps_per_epoch);
  const double reached = std::floor(without_rounding(static_cast<double>(step) / interval));
  return std::pow(options.gamma, reached);
}

double multi_step_factor(const ScheduleOptions& options, std::int64_t step,
                         std::int64_t steps_per_epoch) {
  const auto reached =
      std::count_if(options.milestones.begin(), options.milestones.end(), [&](double milestone) {
        const double steps = milestone * static_cast<double>(steps_per_epoch);
        return static_cast<double>(step) >= without_rounding(steps);
      });
  return std::pow(options.gamma, static_cast<double>(reached));
}

double cosine_factor(const ScheduleOptions& options, std::int64_t step, std::int64_t steps) {
  const double length = static_cast<double>(std::max<std::int64_t>(steps, 1));
  const double progress = std::min(static_cast<double>(step) / length, 1.0);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return options.final_fraction + (1 - options.final_fraction) * cosine;
}

// Interpolates from `begin` to `end` as `progress` goes from 0 to 1.
double annealed(Anneal anneal, double begin, double end, double progress) {
  if (anneal == Anneal::kLinear) return (end - begin) * progress + begin;
  return end + (begin - end) / 2.0 * (std::cos(std::numbers::pi * progress) + 1);
}

// A value in the first step, at the turning point and in the last step of a cycle.
struct CycleValues {
  double first, turn, last;
};

// The cycle turns at step pct_start * steps - 1, which as in PyTorch need not be a whole number.
double cycled(const ScheduleOptions& options, const CycleValues& values, std::int64_t step,
              std::int64_t steps) {
  const double turn = options.pct_start * static_cast<double>(steps) - 1;
  const double end = static_cast<double>(steps - 1);
  const double now = std::min(static_cast<double>(step), end);
  if (now <= turn) {
    return annealed(options.anneal, values.first, values.turn, turn > 0 ? now / turn : 1.0);
  }
  return annealed(options.anneal, values.turn, values.last, (now - turn) / (end - turn));
}

double one_cycle_factor(const ScheduleOptions& options, std::int64_t step, std::int64_t steps) {
  const double first = 1 / options.div_factor;
  return cycled(options, {.first = first, .turn = 1, .last = first / options.final_div_factor},
                step, steps);
}

std::int64_t warmup_steps(const ScheduleOptions& options, std::int64_t steps_per_epoch) {
  return std::llround(options.warmup_epochs * static_cast<double>(steps_per_epoch));
}

// " over 10 epochs".
std::string over_epochs(std::int64_t max_epochs) {
  return lockstep::str(" over ", max_epochs, " epochs");
}

std::string plateau_text(const PlateauOptions& plateau) {
  std::string text =
      lockstep::str("times ", plateau.factor, " when ", plateau.monitor,
                    plateau.mode == MetricGoal::kMin ? " does not fall by " : " does not rise by ",
                    plateau.threshold);
  if (plateau.threshold_mode == ThresholdMode::kRelative) text += " of itself";
  text += lockstep::str(" in more than ", plateau.patience, " evaluations");
  if (plateau.cooldown > 0) text += lockstep::str(", cooldown ", plateau.cooldown);
  if (plateau.min_lr > 0) text += lockstep::str(", not below ", plateau.min_lr);
  return text;
}

std::string momentum_text(const ScheduleOptions& options) {
  return lockstep::str(", momentum from ", options.max_momentum, " to ", options.base_momentum,
                       " and back");
}

std::string kind_text(const ScheduleOptions& options, std::int64_t max_epochs) {
  switch (options.kind) {
    case ScheduleKind::kConstant:
      return "constant";
    case ScheduleKind::kStep:
      return lockstep::str("times ", options.gamma, " every ", options.step_epochs, " epochs");
    case ScheduleKind::kMultiStep:
      return lockstep::str("times ", options.gamma, " at epochs ", join(options.milestones));
    case ScheduleKind::kCosine:
      return lockstep::str("cosine to ", options.final_fraction, over_epochs(max_epochs));
    case ScheduleKind::kOneCycle:
      return lockstep::str("one-cycle", over_epochs(max_epochs), ", rising for ", options.pct_start,
                           " of them, divided by ", options.div_factor, " and ",
                           options.final_div_factor,
                           options.anneal == Anneal::kLinear ? ", linear" : "",
                           options.cycle_momentum ? momentum_text(options) : "");
    case ScheduleKind::kPlateau:
      return plateau_text(options.plateau);
  }
  throw InternalError("schedule: a kind without a text");
}

}  // namespace

void validate(const ScheduleOptions& options) {
  const OptionCheck check("schedule");
  check.at_least("warmup_epochs", options.warmup_epochs, 0);
  check.positive("step_epochs", options.step_epochs);
  check.positive("gamma", options.gamma);
  check.in_range("final_fraction", options.final_fraction, 0, 1);
  if (options.kind == ScheduleKind::kMultiStep && options.milestones.empty()) {
    throw ConfigError("schedule: multi-step needs milestones, the epochs at which the rate falls");
  }
  for (const double milestone : options.milestones) {
    check.in_range("a milestone", milestone, 0, 1e9);
  }
  if (!std::is_sorted(options.milestones.begin(), options.milestones.end())) {
    throw ConfigError(
        lockstep::str("schedule: milestones must ascend, got ", join(options.milestones)));
  }
  check.in_range("pct_start", options.pct_start, 0, 1);
  check.positive("div_factor", options.div_factor);
  check.positive("final_div_factor", options.final_div_factor);
  check.in_range("base_momentum", options.base_momentum, 0, options.max_momentum);
  check.in_range("max_momentum", options.max_momentum, 0, 1);
  if (!(options.max_momentum < 1)) {
    throw ConfigError("schedule: max_momentum must be below 1, got 1");
  }
  if (options.cycle_momentum && options.kind != ScheduleKind::kOneCycle) {
    throw ConfigError("schedule: cycle_momentum belongs to the kind one-cycle");
  }
  validate(options.plateau);
}

double learning_rate_factor(const ScheduleOptions& options, std::int64_t step,
                            std::int64_t steps_per_epoch, std::int64_t total_steps) {
  const std::int64_t warmup = warmup_steps(options, steps_per_epoch);
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  switch (options.kind) {
    case ScheduleKind::kConstant:
    case ScheduleKind::kPlateau:
      return 1;
    case ScheduleKind::kStep:
      return step_factor(options, step, steps_per_epoch);
    case ScheduleKind::kMultiStep:
      return multi_step_factor(options, step, steps_per_epoch);
    case ScheduleKind::kCosine:
      return cosine_factor(options, step - warmup, total_steps - warmup);
    case ScheduleKind::kOneCycle:
      return one_cycle_factor(options, step - warmup, total_steps - warmup);
  }
  return 1;
}

std::optional<double> scheduled_momentum(const ScheduleOptions& options, std::int64_t step,
                                         std::int64_t steps_per_epoch, std::int64_t total_steps) {
  if (options.kind != ScheduleKind::kOneCycle || !options.cycle_momentum) return std::nullopt;
  const std::int64_t warmup = warmup_steps(options, steps_per_epoch);
  if (step < warmup) return options.max_momentum;
  const CycleValues values = {
      .first = options.max_momentum, .turn = options.base_momentum, .last = options.max_momentum};
  return cycled(options, values, step - warmup, total_steps - warmup);
}

LearningRateFactor schedule_function(const ScheduleOptions& options) {
  validate(options);
  if (options.kind == ScheduleKind::kPlateau) {
    throw ConfigError(
        "schedule_function: schedule plateau depends on evaluations; set the Trainer's own "
        "schedule");
  }
  if (options.cycle_momentum) {
    throw ConfigError(
        "schedule_function: cycle_momentum changes the momentum, too; set the Trainer's own "
        "schedule");
  }
  return [options](const ScheduleProgress& at) {
    return learning_rate_factor(options, at.step, at.steps_per_epoch, at.total_steps);
  };
}

const std::vector<std::string>& learning_rate_schedule_names() { return named_kinds().names(); }

ScheduleKind parse_schedule(const std::string& name) {
  return named_kinds().value_of("schedule", "kind", name);
}

std::string to_string(const ScheduleOptions& options, std::int64_t max_epochs) {
  std::string text = kind_text(options, max_epochs);
  if (options.warmup_epochs > 0)
    text += lockstep::str(" after ", options.warmup_epochs, " of warm-up");
  return text;
}

}  // namespace lockstep
