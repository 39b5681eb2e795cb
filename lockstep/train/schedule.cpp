#include <lockstep/train/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>

namespace lockstep {

void validate(const ScheduleOptions& options) {
  const OptionCheck check("schedule");
  check.at_least("warmup_epochs", options.warmup_epochs, 0);
  check.positive("step_epochs", options.step_epochs);
  check.positive("gamma", options.gamma);
  check.in_range("final_fraction", options.final_fraction, 0, 1);
}

double learning_rate_factor(const ScheduleOptions& options, std::int64_t step,
                            std::int64_t steps_per_epoch, std::int64_t total_steps) {
  const auto warmup = static_cast<std::int64_t>(
      std::llround(options.warmup_epochs * static_cast<double>(steps_per_epoch)));
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  switch (options.kind) {
    case ScheduleKind::kConstant:
      return 1;
    case ScheduleKind::kStep: {
      const double epoch = static_cast<double>(step) / static_cast<double>(steps_per_epoch);
      return std::pow(options.gamma, std::floor(epoch / options.step_epochs));
    }
    case ScheduleKind::kCosine: {
      const double length = static_cast<double>(std::max<std::int64_t>(total_steps - warmup, 1));
      const double progress = std::min(static_cast<double>(step - warmup) / length, 1.0);
      const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * progress));
      return options.final_fraction + (1 - options.final_fraction) * cosine;
    }
  }
  return 1;
}

ScheduleKind parse_schedule(const std::string& name) {
  OptionCheck("schedule").one_of("kind", name, {"constant", "step", "cosine"});
  return name == "constant" ? ScheduleKind::kConstant
         : name == "step"   ? ScheduleKind::kStep
                            : ScheduleKind::kCosine;
}

std::string to_string(const ScheduleOptions& options, std::int64_t max_epochs) {
  std::string text = "constant";
  if (options.kind == ScheduleKind::kStep) {
    text = lockstep::str("times ", options.gamma, " every ", options.step_epochs, " epochs");
  } else if (options.kind == ScheduleKind::kCosine) {
    text = lockstep::str("cosine to ", options.final_fraction, " over ", max_epochs, " epochs");
  }
  if (options.warmup_epochs > 0)
    text += lockstep::str(" after ", options.warmup_epochs, " of warm-up");
  return text;
}

}  // namespace lockstep
