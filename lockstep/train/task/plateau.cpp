#include <lockstep/train/task/plateau.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/optim/options.h>

namespace lockstep {
namespace {

// Worse than any value.
double worst_of(MetricGoal goal) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return goal == MetricGoal::kMin ? kInfinity : -kInfinity;
}

// Parses the `count` numbers of `state`, written by exact_text() and separated by spaces.
std::vector<double> numbers_of_state(const std::string& state, std::size_t count,
                                     const char* owner) {
  std::vector<double> numbers;
  const char* at = state.data();
  const char* const end = at + state.size();
  while (at < end) {
    double number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (stop < end && *stop != ' ')) break;
    numbers.push_back(number);
    at = stop < end ? stop + 1 : stop;
  }
  if (at == end && numbers.size() == count) return numbers;
  throw CheckpointError(lockstep::str("the checkpoint's state of ", owner, " is '", state,
                                      "', expected ", count, " numbers"));
}

const detail::NamedValues<MetricGoal>& named_goals() {
  static const detail::NamedValues<MetricGoal> all = {{"min", MetricGoal::kMin},
                                                      {"max", MetricGoal::kMax}};
  return all;
}

std::int64_t whole_number_of(double number) { return static_cast<std::int64_t>(number); }

}  // namespace

std::string to_string(MetricGoal goal) { return named_goals().name_of(goal); }

MetricGoal parse_metric_goal(const std::string& name) {
  return named_goals().value_of("metric", "goal", name);
}

void validate(const PlateauOptions& options) {
  const OptionCheck check("schedule");
  if (options.monitor.empty()) throw ConfigError("schedule: the metric of a plateau has no name");
  check.positive("factor", options.factor);
  if (options.factor >= 1) {
    throw ConfigError(lockstep::str("schedule: factor must be below 1, got ", options.factor));
  }
  check.at_least("patience", static_cast<double>(options.patience), 0);
  check.at_least("threshold", options.threshold, 0);
  check.at_least("cooldown", static_cast<double>(options.cooldown), 0);
  check.at_least("min_lr", options.min_lr, 0);
  check.at_least("eps", options.eps, 0);
}

PlateauSchedule::PlateauSchedule(const PlateauOptions& options, double lr)
    : options_(options), lr_(lr), best_(worst_of(options.mode)) {}

bool PlateauSchedule::is_better(double value) const {
  const bool relative = options_.threshold_mode == ThresholdMode::kRelative;
  if (options_.mode == MetricGoal::kMin) {
    return value < (relative ? best_ * (1.0 - options_.threshold) : best_ - options_.threshold);
  }
  return value > (relative ? best_ * (options_.threshold + 1.0) : best_ + options_.threshold);
}

// The order of these steps is PyTorch's, so that the rate is reduced after the same evaluation.
void PlateauSchedule::step(double value) {
  if (is_better(value)) {
    best_ = value;
    bad_values_ = 0;
  } else {
    ++bad_values_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_values_ = 0;
  }
  if (bad_values_ <= options_.patience) return;
  const double reduced = std::max(lr_ * options_.factor, options_.min_lr);
  if (lr_ - reduced > options_.eps) lr_ = reduced;
  cooldown_left_ = options_.cooldown;
  bad_values_ = 0;
}

std::string PlateauSchedule::state() const {
  return lockstep::str(exact_text(lr_), ' ', exact_text(best_), ' ', bad_values_, ' ',
                       cooldown_left_);
}

void PlateauSchedule::restore(const std::string& state) {
  const std::vector<double> numbers = numbers_of_state(state, 4, "the schedule");
  lr_ = numbers[0];
  best_ = numbers[1];
  bad_values_ = whole_number_of(numbers[2]);
  cooldown_left_ = whole_number_of(numbers[3]);
}

void validate(const EarlyStoppingOptions& options) {
  const OptionCheck check("early stopping");
  if (options.monitor.empty()) throw ConfigError("early stopping: the metric has no name");
  check.at_least("patience", static_cast<double>(options.patience), 1);
  check.at_least("min_delta", options.min_delta, 0);
}

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : options_(options), best_(worst_of(options.mode)) {}

void EarlyStopping::step(double value) {
  last_ = value;
  const bool better = options_.mode == MetricGoal::kMin ? value < best_ - options_.min_delta
                                                        : value > best_ + options_.min_delta;
  if (better) {
    best_ = value;
    bad_values_ = 0;
  } else {
    ++bad_values_;
  }
}

// Uses the current options: a run resumed with more patience continues.
bool EarlyStopping::stopped() const {
  return bad_values_ >= options_.patience || (options_.check_finite && !std::isfinite(last_));
}

std::string EarlyStopping::reason() const {
  if (options_.check_finite && !std::isfinite(last_)) {
    // The sign of the bits of NaN means nothing.
    return options_.monitor + " is " + (std::isnan(last_) ? "nan" : lockstep::str(last_));
  }
  return lockstep::str(options_.monitor, " has not improved on ", best_, " in ", bad_values_,
                       bad_values_ == 1 ? " evaluation" : " evaluations");
}

std::string EarlyStopping::state() const {
  return lockstep::str(exact_text(best_), ' ', exact_text(last_), ' ', bad_values_);
}

void EarlyStopping::restore(const std::string& state) {
  const std::vector<double> numbers = numbers_of_state(state, 3, "early stopping");
  best_ = numbers[0];
  last_ = numbers[1];
  bad_values_ = whole_number_of(numbers[2]);
}

BestValue::BestValue(std::string monitor, MetricGoal mode)
    : monitor_(std::move(monitor)), mode_(mode) {}

void BestValue::step(const ReachedValue& next) {
  if (!std::isfinite(next.value)) return;
  if (found_) {
    const double best = found_->value;
    if (mode_ == MetricGoal::kMin ? next.value >= best : next.value <= best) return;
  }
  found_ = next;
}

std::string BestValue::state() const {
  if (!found_) return {};
  return lockstep::str(exact_text(found_->value), ' ', found_->epoch, ' ', found_->step);
}

void BestValue::restore(const std::string& state) {
  found_.reset();
  if (state.empty()) return;
  const std::vector<double> numbers = numbers_of_state(state, 3, "the best value");
  found_ = ReachedValue{.value = numbers[0],
                        .epoch = whole_number_of(numbers[1]),
                        .step = whole_number_of(numbers[2])};
}

}  // namespace lockstep
