#include <lockstep/train/trainer.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/core/options.h>
#include <lockstep/train/step_graph.h>
#include <lockstep/train/training_run.h>

namespace lockstep {
namespace {

void validate_length(const TrainerOptions& options, const OptionCheck& check) {
  // Keeps the product with an epoch's steps well within 64 bits.
  check.in_range("max_epochs", static_cast<double>(options.max_epochs), 1, 1e9);
  check.in_range("min_epochs", static_cast<double>(options.min_epochs), 0,
                 static_cast<double>(options.max_epochs));
  if (options.max_steps) check.at_least("max_steps", static_cast<double>(*options.max_steps), 1);
  if (options.max_time_seconds) check.positive("max_time_seconds", *options.max_time_seconds);
  if (options.early_stopping) validate(*options.early_stopping);
  check.in_range("fast_dev_run", static_cast<double>(options.fast_dev_run), 0, 1e9);
}

void validate_batches(const TrainerOptions& options, const OptionCheck& check) {
  if (options.limit_train_batches) {
    check.at_least("limit_train_batches", static_cast<double>(*options.limit_train_batches), 1);
  }
  check.at_least("overfit_batches", static_cast<double>(options.overfit_batches), 0);
  check.in_range("accumulate_grad_batches", static_cast<double>(options.accumulate_grad_batches), 1,
                 1e9);
  if (options.limit_val_batches) {
    check.at_least("limit_val_batches", static_cast<double>(*options.limit_val_batches), 0);
  }
  check.at_least("check_val_every_n_epoch", static_cast<double>(options.check_val_every_n_epoch),
                 1);
  if (options.val_check_interval) {
    check.at_least("val_check_interval", static_cast<double>(*options.val_check_interval), 1);
  }
  check.at_least("num_sanity_val_steps", static_cast<double>(options.num_sanity_val_steps), 0);
}

void validate_reports(const TrainerOptions& options, const OptionCheck& check) {
  check.at_least("log_every_n_steps", static_cast<double>(options.log_every_n_steps), 1);
  check.at_least("model_summary_depth", options.model_summary_depth, -1);
  check.at_least("log_histograms_every_n_steps",
                 static_cast<double>(options.log_histograms_every_n_steps), 0);
  validate(options.profiler);
  validate(options.trace);
  const auto is_there = [](const ListenerHandle& listener) { return bool(listener); };
  if (!std::ranges::all_of(options.listeners, is_there)) {
    throw ConfigError("Trainer: a listener is a null pointer");
  }
}

// Refuses options whose effect a replay would not have.
void validate_graph(const TrainerOptions& options) {
  if (!options.cuda_graph) return;
  if (options.detect_anomaly) {
    throw ConfigError(
        "Trainer: cuda_graph and detect_anomaly cannot be combined: a replayed backward pass does "
        "not check values for NaN; remove one of them");
  }
  if (options.on_nan != OnNan::kWarn) {
    throw ConfigError(lockstep::str("Trainer: cuda_graph and on_nan ", to_string(options.on_nan),
                                    " cannot be combined: a replayed step updates the parameters "
                                    "before the host knows its loss; choose one"));
  }
  if (options.schedule.cycle_momentum) {
    throw ConfigError(
        "Trainer: cuda_graph and cycle_momentum cannot be combined: the momentum of a replayed "
        "step is that of the recorded one; remove one of them");
  }
}

void validate_trainer(const TrainerOptions& options) {
  const OptionCheck check("Trainer");
  validate_length(options, check);
  validate_batches(options, check);
  validate_reports(options, check);
  if (options.gradient_clip_norm) {
    check.positive("gradient_clip_norm", *options.gradient_clip_norm);
  }
  if (options.gradient_clip_value) {
    check.positive("gradient_clip_value", *options.gradient_clip_value);
  }
  if (options.ema_decay) check.in_range("ema_decay", *options.ema_decay, 0, 1);
  if (options.cudnn_benchmark && options.deterministic) {
    throw ConfigError(
        "Trainer: cudnn_benchmark and deterministic cannot be combined: what is fastest differs "
        "from run to run; remove one of them");
  }
  validate(options.schedule);
  validate_graph(options);
  validate(options.checkpoints);
  if (!options.resume) return;
  if (options.overwrite) {
    throw ConfigError("Trainer: resume and overwrite cannot be combined; remove one of them");
  }
  if (options.fast_dev_run > 0) {
    throw ConfigError(
        "Trainer: resume cannot be combined with fast_dev_run, which keeps no checkpoints; remove "
        "one of them");
  }
  if (options.checkpoints.directory.empty()) {
    throw ConfigError(
        "Trainer: resume needs a folder of checkpoints; set CheckpointOptions::directory");
  }
}

// Applies fast_dev_run and overfit_batches to the other options.
TrainerOptions with_trial_options(TrainerOptions options) {
  if (options.overfit_batches > 0) {
    options.limit_train_batches = options.overfit_batches;
    options.limit_val_batches = std::min(
        options.limit_val_batches.value_or(options.overfit_batches), options.overfit_batches);
  }
  if (options.fast_dev_run > 0) {
    const std::int64_t batches = options.fast_dev_run;
    options.max_epochs = 1;
    options.min_epochs = 0;
    options.limit_train_batches = std::min(options.limit_train_batches.value_or(batches), batches);
    options.limit_val_batches = std::min(options.limit_val_batches.value_or(batches), batches);
    options.num_sanity_val_steps = 0;
    options.val_check_interval.reset();
    options.early_stopping.reset();
    options.checkpoints = {};
  }
  return options;
}

}  // namespace

Trainer::Trainer(TrainerOptions options, std::unique_ptr<Strategy> strategy)
    : options_(std::move(options)), strategy_(std::move(strategy)) {
  validate_trainer(options_);
  options_ = with_trial_options(std::move(options_));
  if (!options_.command_seconds) {
    options_.command_seconds = [start = Clock::now()] { return seconds_since(start); };
  }
}

// Informs the listeners first: once the other ranks end, a launcher ends this one, too.
void Trainer::run_failed(const std::exception& error) noexcept {
  if (strategy_->group().rank() == 0) {
    for (const ListenerHandle& listener : options_.listeners) listener->on_exception(error);
  }
  try {
    strategy_->end_all(first_line(error));
  } catch (const std::exception& failure) {
    log_warning("the other ranks could not be told that the run failed: ", first_line(failure));
  }
}

RunReport Trainer::fit_any(
    detail::TaskBase& task, detail::LoaderBase& train_loader,
    const std::function<std::shared_ptr<detail::LoaderBase>()>& make_validation_loader) try {
  averaged_state_.clear();
  train::TrainingRun run(options_, *strategy_, task, train_loader, make_validation_loader);
  RunReport report = run.run();
  averaged_state_ = run.averaged_state();
  return report;
} catch (const std::exception& error) {
  run_failed(error);
  throw;
} catch (...) {
  run_failed(Error(kForeignException));
  throw;
}

}  // namespace lockstep
