#include <lockstep/train/training_run.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/train/global_modes.h>
#include <lockstep/train/measuring/epoch_usage.h>
#include <lockstep/train/measuring/phase_scope.h>

namespace lockstep::train {
namespace {

// "interrupted by signal 15 (Terminated)"
std::string request_text(int signal) {
  if (signal == 0) return "stopped at the program's request";
  return lockstep::str("interrupted by signal ", signal, " (", strsignal(signal), ")");
}

void add_phases(const PhaseSeconds& phases, PhaseSeconds& to) {
  to.data += phases.data;
  to.forward += phases.forward;
  to.backward += phases.backward;
  to.communication += phases.communication;
  to.optimizer += phases.optimizer;
  to.stage_waits += phases.stage_waits;
}

// The value by which the run is judged (BestEvaluation).
BestValue judged_value(const TrainerOptions& options) {
  const bool keeps_best = options.checkpoints.save_top_k > 0;
  if (!keeps_best && options.early_stopping) {
    return {options.early_stopping->monitor, options.early_stopping->mode};
  }
  if (!keeps_best && options.schedule.kind == ScheduleKind::kPlateau) {
    return {options.schedule.plateau.monitor, options.schedule.plateau.mode};
  }
  return {options.checkpoints.monitor, options.checkpoints.mode};
}

}  // namespace

TrainingRun::TrainingRun(const TrainerOptions& options, Strategy& strategy, detail::TaskBase& task,
                         detail::LoaderBase& train_loader, const LoaderFactory& make_test_loader)
    : options_(options),
      strategy_(strategy),
      task_(task),
      train_loader_(train_loader),
      make_test_loader_(make_test_loader),
      plan_(task, options.optimizer, options.schedule),
      base_lr_(plan_.base_lr()),
      finite_steps_(options.on_nan, options.device),
      best_(judged_value(options)),
      share_(strategy.data_share()),
      info_(options.info),
      start_(Clock::now()),
      stop_(options.stop_request, options.max_time_seconds, start_, options.device),
      skipped_elsewhere_(train_loader.skipped_images()) {
  complete_info();
  if (options.precision == Precision::kFp16) scaler_.emplace(options.grad_scaler, options.device);
  if (options.schedule.kind == ScheduleKind::kPlateau) {
    plateau_.emplace(options.schedule.plateau, base_lr_);
  }
  if (options.early_stopping) early_stopping_.emplace(*options.early_stopping);
}

// The last step of an epoch takes the remaining batches.
std::int64_t TrainingRun::steps_of(std::int64_t batches) const {
  const std::int64_t each = options_.accumulate_grad_batches;
  return (batches + each - 1) / each;
}

// Overfitting repeats the batches of the first epoch.
std::int64_t TrainingRun::loader_epoch() const {
  return options_.overfit_batches > 0 ? 0 : position_.epoch - 1;
}

std::int64_t TrainingRun::batches_per_epoch() const {
  const std::int64_t all = train_loader_.steps_per_epoch();
  return std::min(all, options_.limit_train_batches.value_or(all));
}

std::int64_t TrainingRun::batches_done() const {
  return train_loader_.steps_per_epoch() - train_loader_.steps_left();
}

std::int64_t TrainingRun::batches_left() const {
  return std::max<std::int64_t>(batches_per_epoch() - batches_done(), 0);
}

std::int64_t TrainingRun::steps_per_epoch() const { return steps_of(batches_per_epoch()); }

std::int64_t TrainingRun::steps_left() const { return steps_of(batches_left()); }

std::int64_t TrainingRun::schedule_steps() const { return options_.max_epochs * steps_per_epoch(); }

std::int64_t TrainingRun::total_steps() const {
  return std::min(schedule_steps(), options_.max_steps.value_or(schedule_steps()));
}

std::int64_t TrainingRun::test_batches() const {
  return options_.limit_val_batches.value_or(std::numeric_limits<std::int64_t>::max());
}

bool TrainingRun::all_steps_done() const { return position_.total >= total_steps(); }

bool TrainingRun::already_complete() const {
  return resumes_ && (all_steps_done() || stopped_early());
}

bool TrainingRun::finished() const {
  if (all_steps_done() || stop_.requested() || stopped_early()) return true;
  return stop_.out_of_time() && position_.epoch > options_.min_epochs;
}

bool TrainingRun::stopped_early() const {
  return early_stopping_ && early_stopping_->stopped() && position_.epoch > options_.min_epochs;
}

bool TrainingRun::interrupted() const {
  return finished() && !all_steps_done() && !stopped_early();
}

double TrainingRun::command_seconds() const { return options_.command_seconds(); }

RunReport TrainingRun::run() {
  const GlobalModes modes({.deterministic = options_.deterministic,
                           .detect_anomaly = options_.detect_anomaly,
                           .cudnn_benchmark = options_.cudnn_benchmark,
                           .matmul_precision = options_.matmul_precision});
  if (!options_.device.is_cpu()) device_timer_.emplace(options_.device);
  prepare();
  // Before the listeners make files of the run: one that cannot be evaluated leaves none.
  check_sanity();
  prepare_checkpoints();
  begin();
  begin_training();
  std::vector<EpochReport> epochs;
  while (!finished()) {
    EpochReport report = train_epoch();
    end_epoch(report);
    save();
    report.rss_bytes = rss_bytes();
    tell([&](Listener& listener) { listener.on_epoch_end(report); });
    epochs.push_back(std::move(report));
  }
  return finish(std::move(epochs));
}

StateDict TrainingRun::averaged_state() {
  StateDict state;
  if (!ema_) return state;
  const torch::NoGradGuard no_grad;
  const AveragedWeights averaged(&*ema_);
  strategy_.begin_evaluation();  // gives all ranks rank 0's statistics, as an evaluation does
  for (const auto& [name, tensor] : state_dict(task_.module())) {
    state.emplace_back(name, tensor.clone());
  }
  return state;
}

// Work still queued on the device belongs to the epoch.
TrainingRun::EpochPause TrainingRun::pause_epoch() {
  tell_late_reports(/*all=*/true);
  if (device_timer_) device_timer_->settle();
  return {.clock = EpochClock::Pause(clock_), .gpus = GpuSampler::Pause(gpus_ ? &*gpus_ : nullptr)};
}

EpochReport TrainingRun::train_epoch() {
  const std::int64_t steps_before = steps_trained_;
  sums_ = {};
  images_ = 0;
  phases_ = {};
  first_batch_seconds_ = 0;
  if (gpus_) gpus_->reset();
  clock_.start();

  {
    const PhaseScope scope(phases_.data, "begin epoch");
    const PhaseSecondsScope first(first_batch_seconds_);
    begin_epoch();
  }
  while (!finished()) {
    const std::int64_t before = batches_done();
    const std::int64_t parts = std::min(options_.accumulate_grad_batches, batches_left());
    if (parts == 0) break;
    if (operations_) operations_->begin_step(steps_trained_);
    if (trace_) trace_->begin_step();
    const bool is_first = steps_trained_ == steps_before;
    const LoadedBatch* const batch = next_batch(is_first);
    if (batch == nullptr) break;
    train_step(*batch, parts);
    stop_.after_step(position_.total, strategy_.group());
    report_step();
    tell_histograms();
    const bool evaluates = evaluation_is_due(before);
    if (evaluates) evaluate_in_epoch();
    if (checkpoint_is_due(evaluates)) {
      const EpochPause pause = pause_epoch();
      save();
    }
  }
  EpochReport report = report_epoch(steps_trained_ - steps_before);
  // On a GPU, or on another rank, a step's loss may not have been looked at.
  if (strategy_.group().rank() == 0) {
    finite_steps_.note(report.train_loss, lockstep::str("epoch ", report.epoch));
  }
  add_phases(phases_, all_phases_);
  if (batches_left() == 0) {
    ++position_.epoch;
    position_.step = 0;
  }
  return report;
}

// NaN if all steps of the epoch were skipped.
double TrainingRun::mean_loss() const {
  const Evaluation mean = sums_.mean();
  return mean.has_loss ? mean.loss : std::numeric_limits<double>::quiet_NaN();
}

// The means of the epoch's `steps`, over all ranks. Collective.
EpochReport TrainingRun::report_epoch(std::int64_t steps) {
  EpochReport report;
  report.epoch = position_.epoch;
  report.steps = steps;
  report.steps_per_epoch = steps_per_epoch();
  settle_times();
  report.seconds = clock_.seconds();
  report.first_batch_seconds = first_batch_seconds_;
  set_usage(clock_.used(), gpus_ ? gpus_->mean() : std::nullopt, strategy_.group(), options_.device,
            report);
  sums_.all_reduce(strategy_.group(), options_.device);
  report.train_loss = mean_loss();
  report.images_per_second = static_cast<double>(images_) / report.seconds;
  report.phases = phases_;
  return report;
}

// An evaluation made only because the run stops, within an epoch or between two epochs with an
// evaluation, decides nothing: a run resumed from there must equal one that was not stopped. A run
// that was asked to stop has no time for it.
void TrainingRun::end_epoch(EpochReport& report) {
  const bool is_whole = position_.step == 0;
  const bool is_due = is_whole && report.epoch % options_.check_val_every_n_epoch == 0;
  const auto has_time = [this] { return !stop_.requested() || !interrupted(); };
  if (is_due || (finished() && has_time())) report.test = evaluate();
  if (is_whole) watch(is_due ? report.test : std::nullopt, report.train_loss, report.epoch);
  stop_.settle(strategy_.group());
  if (!report.test && finished() && has_time()) report.test = evaluate();
  if (report.test) show_picture(report.epoch);
}

void TrainingRun::begin_epoch() {
  if (std::exchange(restored_, false)) return;
  train_loader_.set_epoch(loader_epoch(), position_.step * options_.accumulate_grad_batches);
}

// The sum over all ranks' loaders, counting ranks that share their data once. Collective.
std::int64_t TrainingRun::skipped_images() const {
  const std::int64_t own = train_loader_.skipped_images() +
                           (test_loader_ ? test_loader_->skipped_images() : 0) - skipped_elsewhere_;
  torch::Tensor sum = torch::tensor({share_.counts ? own : 0}, torch::kInt64).to(options_.device);
  strategy_.group().all_reduce(sum);
  return sum.item<std::int64_t>();
}

std::string TrainingRun::stop_reason() const {
  if (all_steps_done() || !finished()) return {};
  if (stopped_early()) return early_stopping_->reason();
  if (stop_.requested()) return request_text(stop_.signal());
  return lockstep::str("the time limit of ", *options_.max_time_seconds, " s has passed");
}

RunReport TrainingRun::finish(std::vector<EpochReport> epochs) {
  RunReport report;
  report.info = info_;
  report.already_complete = epochs.empty();
  writing_.wait();
  report.test = epochs.empty() ? evaluate() : epochs.back().test;
  report.best = best_evaluation();
  report.epochs = std::move(epochs);
  report.stop_reason = stop_reason();
  report.interrupted = interrupted();
  if (report.interrupted) {
    report.stop_signal = stop_.signal();
    if (store_) report.saved_in = store_->newest().string();
  }
  if (finite_steps_.skipped() > 0 && strategy_.group().rank() == 0) {
    log_warning("Trainer: ", finite_steps_.skipped(), " of ", amount_of(steps_trained_, "step"),
                finite_steps_.skipped() == 1 ? " was" : " were",
                " skipped, because a loss or gradient was not finite");
  }
  if (operations_) operations_->finish();
  if (device_timer_) device_timer_->settle();
  if (trace_) trace_->finish(strategy_.spans(), strategy_.group());
  if (options_.profiler.kind != Profiler::kNone) report.profile = profile();
  report.seconds_to_first_step = seconds_to_first_step_;
  report.peak_rss_bytes = peak_rss_bytes();
  strategy_.gather_module();  // for the caller; without checkpoints the run has not done so yet
  // Waits for all ranks, so that none leaves while others still evaluate or save.
  report.skipped_images = skipped_images();
  report.seconds_total = command_seconds();
  tell([&](Listener& listener) { listener.on_run_end(report); });
  return report;
}

}  // namespace lockstep::train
