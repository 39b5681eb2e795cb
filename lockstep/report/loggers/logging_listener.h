// Passes the Trainer's events to experiment loggers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/report/loggers/logger.h>
#include <lockstep/train/task/listener.h>

namespace lockstep {

/// Gives every logger the run's hyper-parameters, then
///   train/loss, train/learning_rate                     at each optimizer step: rank 0's own loss
///   train/momentum                                      at the same steps, if the schedule
///                                                       changes it
///   parameters/NAME, gradients/NAME                     histograms every
///                                                       log_histograms_every_n_steps steps
///                                                       (TrainerOptions), if the logger takes
///                                                       them
///   epoch, train/epoch_loss, train/images_per_second,   at the end of each epoch
///   train/seconds, phases/NAME_seconds (rank 0's), memory/rss_bytes,
///   validation/loss and validation/NAME of every other  at each evaluation, also in mid-epoch
///   metric
///   validation/NAME of every table, such as a           with these, to loggers that take tables
///   confusion matrix
///   images/NAME of Task::picture()                      at the end of an epoch, to loggers that
///                                                       take images
///   memory/peak_rss_bytes, run/seconds_total,           at the end
///   run/seconds_to_first_step
/// Steps are counted over the whole run: a resumed run continues the count. Use it from one thread
/// at a time. An error of a logger ends the run.
class LOCKSTEP_API LoggingListener final : public Listener {
 public:
  /// `more` are hyper-parameters that the Trainer does not report, such as the optimizer's.
  explicit LoggingListener(std::vector<std::unique_ptr<Logger>> loggers,
                           std::vector<HyperParameter> more = {});

  /// A listener that makes its loggers by `open` when a run begins. A run that was already complete
  /// (RunInfo) has nothing to log, so it makes none, and no files.
  static std::unique_ptr<LoggingListener> opened_by(
      std::function<std::vector<std::unique_ptr<Logger>>()> open,
      std::vector<HyperParameter> more = {});

  void on_run_begin(const RunInfo& info) override;
  void on_step(const StepReport& report) override;
  void on_histograms(const HistogramReport& report) override;
  void on_evaluation(const EvaluationReport& report) override;
  bool takes_pictures() const override;
  void on_picture(const PictureReport& report) override;
  void on_epoch_end(const EpochReport& report) override;
  void on_run_end(const RunReport& report) override;

  /// Marks the logs of a failed run as failed and ends them. Does nothing after on_run_end();
  /// errors are only logged as warnings.
  void on_exception(const std::exception& error) noexcept override;

 private:
  void log(std::int64_t step, std::span<const NamedValue> values);
  void log_tables(std::int64_t step, const Evaluation& test);
  void finish(bool success);

  std::function<std::vector<std::unique_ptr<Logger>>()> open_{};  // empty once it has been called
  std::vector<std::unique_ptr<Logger>> loggers_;
  std::vector<HyperParameter> more_;
  std::int64_t steps_per_epoch_ = 0;
  std::int64_t step_ = 0;  // the last reported step of the run
  bool finished_ = false;
};

/// The hyper-parameters of a run that are known before its first step.
LOCKSTEP_API std::vector<HyperParameter> hyper_parameters_of(const RunInfo& info);

}  // namespace lockstep
