// What follows from a value that no longer improves: a lower learning rate, or the end of the run.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Which of two values is the better one.
enum class MetricGoal {
  kMin,  ///< the smaller one, as of a loss
  kMax,  ///< the larger one, as of an accuracy
};

/// "min" or "max".
std::string to_string(MetricGoal goal);
/// The inverse; ConfigError for another word.
MetricGoal parse_metric_goal(const std::string& name);

/// How PlateauOptions::threshold counts.
enum class ThresholdMode {
  kRelative,  ///< as a share of the best value
  kAbsolute,
};

/// torch.optim.lr_scheduler.ReduceLROnPlateau's arguments and defaults, and the value to watch.
struct PlateauOptions {
  /// A value of the evaluations ("loss", "accuracy"), or "train_loss", the mean of an epoch.
  std::string monitor = "loss";
  MetricGoal mode = MetricGoal::kMin;
  double factor = 0.1;         ///< of the learning rate; below 1
  std::int64_t patience = 10;  ///< evaluations without improvement that change nothing
  double threshold = 1e-4;     ///< the least change that is an improvement
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  std::int64_t cooldown = 0;  ///< evaluations after a reduction during which none counts
  double min_lr = 0;
  double eps = 1e-8;  ///< the least reduction of the learning rate that is made
};

/// ConfigError for options that cannot be.
void validate(const PlateauOptions& options);

/// The learning rate that falls when a value no longer improves, as PyTorch's ReduceLROnPlateau.
/// All ranks that step it with the same values agree. A value that is not a number does not
/// improve. Not thread-safe.
class PlateauSchedule {
 public:
  /// `lr` is the learning rate to begin with.
  PlateauSchedule(const PlateauOptions& options, double lr);

  /// Takes a new value in.
  void step(double value);
  double lr() const { return lr_; }

  /// What a resumed run needs, as exact text.
  std::string state() const;
  /// Takes over a state(); CheckpointError, and nothing changed, for another text.
  void restore(const std::string& state);

 private:
  bool is_better(double value) const;

  PlateauOptions options_;
  double lr_;
  double best_;
  std::int64_t bad_values_ = 0;
  std::int64_t cooldown_left_ = 0;
};

/// Ends a run whose value no longer improves. Lightning's EarlyStopping.
struct EarlyStoppingOptions {
  std::string monitor = "loss";  ///< as PlateauOptions::monitor
  MetricGoal mode = MetricGoal::kMin;
  std::int64_t patience = 3;  ///< evaluations in a row without improvement that end the run
  double min_delta = 0;       ///< only a change of more than this is an improvement
  bool check_finite = true;   ///< a value that is not finite ends the run at once
};

/// ConfigError for options that cannot be.
void validate(const EarlyStoppingOptions& options);

/// Decides when a run ends. All ranks that step it with the same values agree. Not thread-safe.
class EarlyStopping {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options);

  /// Takes a new value in.
  void step(double value);
  bool stopped() const;
  /// Why the run ends, as a sentence without its full stop.
  std::string reason() const;

  /// As PlateauSchedule's.
  std::string state() const;
  void restore(const std::string& state);

 private:
  EarlyStoppingOptions options_;
  double best_;
  double last_ = 0;
  std::int64_t bad_values_ = 0;
};

}  // namespace lockstep
