#include <lockstep/cli/train/train_schedule.h>

#include <algorithm>
#include <charconv>

#include <lockstep/bench/word_list.h>
#include <lockstep/cli/train/watched_value.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/parallel/pipeline/pipeline_options.h>

namespace lockstep::cli {
namespace {

constexpr double kLargestMomentum = 0.9999;  // beta1 of Adam must be below 1

std::vector<double> parse_milestones(const std::string& text) {
  std::vector<double> milestones;
  for (const std::string& word : bench::words_of(text)) {
    double milestone = 0;
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, milestone);
    const bool ascends = milestones.empty() || milestone >= milestones.back();
    if (error != std::errc() || stop != end || !(milestone > 0) || milestone > 1e9 || !ascends) {
      throw ConfigError(
          lockstep::str("train: --milestones: expected ascending numbers of epochs, separated by "
                        "commas, such as 30,60; got '",
                        text, "'"));
    }
    milestones.push_back(milestone);
  }
  return milestones;
}

// Refuses options that the schedule does not use.
void refuse_options_of_others(const ScheduleArguments& arguments, ScheduleKind kind) {
  const auto refuse = [](bool is_wrong, const char* message) {
    if (is_wrong) throw ConfigError(lockstep::str("train: ", message));
  };
  refuse(arguments.gamma && kind != ScheduleKind::kStep && kind != ScheduleKind::kMultiStep &&
             kind != ScheduleKind::kPlateau,
         "--gamma belongs to --schedule step, multi-step and plateau");
  refuse(arguments.step_epochs && kind != ScheduleKind::kStep,
         "--step-epochs belongs to --schedule step");
  refuse(arguments.milestones && kind != ScheduleKind::kMultiStep,
         "--milestones belongs to --schedule multi-step");
  refuse(!arguments.milestones && kind == ScheduleKind::kMultiStep,
         "--schedule multi-step needs --milestones, the epochs at which the learning rate falls");
  refuse((arguments.pct_start || arguments.div_factor || arguments.final_div_factor) &&
             kind != ScheduleKind::kOneCycle,
         "--pct-start, --div-factor and --final-div-factor belong to --schedule one-cycle");
  refuse(arguments.cycle_momentum && kind != ScheduleKind::kOneCycle,
         "--cycle-momentum belongs to --schedule one-cycle");
  refuse((arguments.base_momentum || arguments.max_momentum) && !arguments.cycle_momentum,
         "--base-momentum and --max-momentum belong to --cycle-momentum");
  refuse(arguments.plateau && kind != ScheduleKind::kPlateau,
         "--plateau belongs to --schedule plateau");
}

void resolve_plateau(const ScheduleArguments& arguments, PlateauOptions& plateau) {
  plateau.factor = arguments.gamma.value_or(plateau.factor);
  if (plateau.factor >= 1) {
    throw ConfigError(lockstep::str("train: --gamma of --schedule plateau must be below 1, got ",
                                    plateau.factor));
  }
  if (!arguments.plateau) return;
  const WatchedValue watched = parse_watched_value("--plateau", *arguments.plateau);
  plateau.monitor = watched.metric;
  plateau.patience = watched.number;
  plateau.mode = watched.goal;
}

}  // namespace

Schedules told_apart(const std::vector<std::string>& given) {
  const std::vector<std::string> of_pipelines = schedule_names();
  std::vector<std::string> known = learning_rate_schedule_names();
  known.insert(known.end(), of_pipelines.begin(), of_pipelines.end());
  Schedules schedules;
  for (const std::string& name : given) {
    OptionCheck("train").one_of("--schedule", name, known);
    const bool pipelined =
        std::find(of_pipelines.begin(), of_pipelines.end(), name) != of_pipelines.end();
    auto& place = pipelined ? schedules.of_pipeline : schedules.of_learning_rate;
    place = name;  // the last one counts, as with other options
  }
  return schedules;
}

ScheduleOptions resolve_schedule(const ScheduleArguments& arguments, ScheduleOptions schedule) {
  const OptionCheck check("train");
  if (const auto name = told_apart(arguments.schedules).of_learning_rate) {
    schedule.kind = parse_schedule(*name);
  }
  refuse_options_of_others(arguments, schedule.kind);
  schedule.step_epochs = arguments.step_epochs.value_or(schedule.step_epochs);
  schedule.gamma = arguments.gamma.value_or(schedule.gamma);
  schedule.pct_start = arguments.pct_start.value_or(schedule.pct_start);
  schedule.div_factor = arguments.div_factor.value_or(schedule.div_factor);
  schedule.final_div_factor = arguments.final_div_factor.value_or(schedule.final_div_factor);
  schedule.warmup_epochs = arguments.warmup_epochs.value_or(schedule.warmup_epochs);
  schedule.cycle_momentum = schedule.cycle_momentum || arguments.cycle_momentum;
  schedule.base_momentum = arguments.base_momentum.value_or(schedule.base_momentum);
  schedule.max_momentum = arguments.max_momentum.value_or(schedule.max_momentum);
  check.in_range("--max-momentum", schedule.max_momentum, 0, kLargestMomentum);
  check.in_range("--base-momentum", schedule.base_momentum, 0, schedule.max_momentum);
  check.positive("--step-epochs", schedule.step_epochs);
  check.positive("--gamma", schedule.gamma);
  check.in_range("--pct-start", schedule.pct_start, 0, 1);
  check.positive("--div-factor", schedule.div_factor);
  check.positive("--final-div-factor", schedule.final_div_factor);
  check.in_range("--warmup-epochs", schedule.warmup_epochs, 0, 1e6);
  if (arguments.milestones) schedule.milestones = parse_milestones(*arguments.milestones);
  if (schedule.kind == ScheduleKind::kPlateau) resolve_plateau(arguments, schedule.plateau);
  return schedule;
}

}  // namespace lockstep::cli
