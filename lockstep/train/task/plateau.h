// Reacts to a value that no longer improves: lowers the learning rate or ends the run. Remembers
// the best value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/core/export.h>

namespace lockstep {

/// Which of two values is the better one.
enum class MetricGoal {
  kMin,  ///< the smaller one, as for a loss
  kMax,  ///< the larger one, as for an accuracy
};

/// "min" or "max".
LOCKSTEP_API std::string to_string(MetricGoal goal);
/// The inverse of to_string(). Throws ConfigError for an unknown name.
LOCKSTEP_API MetricGoal parse_metric_goal(const std::string& name);

/// How PlateauOptions::threshold is applied.
enum class ThresholdMode {
  kRelative,  ///< as a share of the best value
  kAbsolute,
};

/// torch.optim.lr_scheduler.ReduceLROnPlateau's arguments and defaults, and the value to watch.
struct LOCKSTEP_API PlateauOptions {
  /// A value of the evaluations ("loss", "accuracy"), or "train_loss", the mean training loss of an
  /// epoch.
  std::string monitor = "loss";
  MetricGoal mode = MetricGoal::kMin;
  double factor = 0.1;         ///< multiplies the learning rate at each reduction; below 1
  std::int64_t patience = 10;  ///< evaluations without improvement that are tolerated
  double threshold = 1e-4;     ///< minimum change that counts as an improvement
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  std::int64_t cooldown = 0;  ///< evaluations after a reduction that are not counted
  double min_lr = 0;          ///< lower limit of the learning rate
  double eps = 1e-8;          ///< smaller reductions of the learning rate are skipped
};

/// Throws ConfigError for invalid options.
LOCKSTEP_API void validate(const PlateauOptions& options);

/// A learning rate that falls when a value no longer improves, like PyTorch's ReduceLROnPlateau.
/// Ranks that call step() with equal values have equal rates. NaN never counts as an improvement.
/// Not thread-safe.
class LOCKSTEP_API PlateauSchedule {
 public:
  /// `lr` is the initial learning rate.
  PlateauSchedule(const PlateauOptions& options, double lr);

  /// Records a new value.
  void step(double value);
  double lr() const { return lr_; }

  /// The state for a resumed run, as exact text.
  std::string state() const;
  /// Restores a state(). Throws CheckpointError and changes nothing for invalid text.
  void restore(const std::string& state);

 private:
  bool is_better(double value) const;

  PlateauOptions options_;
  double lr_;
  double best_;
  std::int64_t bad_values_ = 0;
  std::int64_t cooldown_left_ = 0;
};

/// Ends a run whose value no longer improves, like Lightning's EarlyStopping.
struct LOCKSTEP_API EarlyStoppingOptions {
  std::string monitor = "loss";  ///< as PlateauOptions::monitor
  MetricGoal mode = MetricGoal::kMin;
  std::int64_t patience = 3;  ///< consecutive evaluations without improvement that end the run
  double min_delta = 0;       ///< a change must exceed this to be an improvement
  bool check_finite = true;   ///< a value that is not finite ends the run at once
};

/// Throws ConfigError for invalid options.
LOCKSTEP_API void validate(const EarlyStoppingOptions& options);

/// Decides when a run ends. Ranks that call step() with equal values decide alike. Not thread-safe.
class LOCKSTEP_API EarlyStopping {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options);

  /// Records a new value.
  void step(double value);
  bool stopped() const;
  /// Why the run ends, as a sentence without its full stop.
  std::string reason() const;

  /// Like PlateauSchedule::state() and restore().
  std::string state() const;
  void restore(const std::string& state);

 private:
  EarlyStoppingOptions options_;
  double best_;
  double last_ = 0;
  std::int64_t bad_values_ = 0;
};

/// A value, and when the run reached it.
struct LOCKSTEP_API ReachedValue {
  double value = 0;
  std::int64_t epoch = 0;  ///< from 1
  std::int64_t step = 0;   ///< optimizer steps done in all epochs
};

/// Remembers the best of a run's values. Of equal values the first one counts; a value that is not
/// finite never does. Not thread-safe.
class LOCKSTEP_API BestValue {
 public:
  /// `monitor` is as PlateauOptions::monitor.
  BestValue(std::string monitor, MetricGoal mode);

  /// Records a new value.
  void step(const ReachedValue& next);
  const std::string& monitor() const { return monitor_; }
  /// Nothing if no value was finite.
  const std::optional<ReachedValue>& found() const { return found_; }

  /// What is watched, such as "min loss": a state belongs to one such text.
  std::string watched() const { return to_string(mode_) + " " + monitor_; }
  /// Like PlateauSchedule::state() and restore(); empty if nothing was found.
  std::string state() const;
  void restore(const std::string& state);

 private:
  std::string monitor_;
  MetricGoal mode_;
  std::optional<ReachedValue> found_{};
};

}  // namespace lockstep
