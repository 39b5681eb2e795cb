#include <lockstep/train/training_run.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <variant>

#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/train/global_modes.h>
#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/optimization/step_seed.h>

namespace lockstep {
namespace {

// On a GPU, reading the ranks' shared clock waits for the device, so it is read once per this many
// steps.
constexpr std::int64_t kDeviceClockInterval = 10;

std::int64_t trainable_scalars(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : distinct(module.parameters())) {
    if (parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

void add_phases(const PhaseSeconds& phases, PhaseSeconds& to) {
  to.data += phases.data;
  to.forward += phases.forward;
  to.backward += phases.backward;
  to.communication += phases.communication;
  to.optimizer += phases.optimizer;
  to.stage_waits += phases.stage_waits;
}

}  // namespace

TrainingRun::TrainingRun(const TrainerOptions& options, Strategy& strategy, Task& task,
                         Loader& train_loader, const Trainer::LoaderFactory& make_test_loader)
    : options_(options),
      strategy_(strategy),
      task_(task),
      train_loader_(train_loader),
      make_test_loader_(make_test_loader),
      base_lr_(std::visit([](const auto& each) { return each.lr; }, options.optimizer)),
      share_(strategy.data_share()),
      info_(options.info),
      start_(Clock::now()),
      skipped_elsewhere_(train_loader.skipped_images()) {
  complete_info();
  if (options.precision == Precision::kFp16) scaler_.emplace(options.grad_scaler, options.device);
  if (options.schedule.kind == ScheduleKind::kPlateau) {
    plateau_.emplace(options.schedule.plateau, base_lr_);
  }
  if (options.early_stopping) early_stopping_.emplace(*options.early_stopping);
}

// Fills in what the caller has left out from the loader and LibTorch.
void TrainingRun::complete_info() {
  const LoaderOptions& of_loader = train_loader_.options();
  if (info_.global_batch == 0) info_.global_batch = of_loader.batch_size * share_.size;
  if (info_.loader.empty()) info_.loader = to_string(of_loader.engine);
  if (info_.threads_per_rank == 0) info_.threads_per_rank = at::get_num_threads();
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

bool TrainingRun::finished() const {
  if (all_steps_done()) return true;
  const bool shall_stop = out_of_time_ || (early_stopping_ && early_stopping_->stopped());
  return shall_stop && position_.epoch > options_.min_epochs;
}

double TrainingRun::command_seconds() const { return options_.command_seconds(); }

Batch TrainingRun::moved(const Batch& batch) const {
  if (options_.device.is_cpu()) return batch;
  // The host must not proceed while the device may still read pinned memory, because the loader
  // refills it. A loader on the run's own device returns no pinned memory.
  return {.images = batch.images.to(options_.device, /*non_blocking=*/!batch.images.is_pinned()),
          .labels = batch.labels.to(options_.device, /*non_blocking=*/!batch.labels.is_pinned()),
          .size = batch.size};
}

RunReport TrainingRun::run() {
  const GlobalModes modes({.deterministic = options_.deterministic,
                           .detect_anomaly = options_.detect_anomaly,
                           .cudnn_benchmark = options_.cudnn_benchmark,
                           .matmul_precision = options_.matmul_precision});
  if (!options_.device.is_cpu()) device_timer_.emplace(options_.device);
  prepare();
  begin();
  check_sanity();
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

void TrainingRun::prepare() {
  if (train_loader_.steps_per_epoch() < 1) {
    throw ConfigError("Trainer: the training loader has no batches; use a smaller --batch-size");
  }
  require_val_check_interval();
  // An engine that cannot load the test data fails before the first epoch, not after it.
  if (make_test_loader_ && test_batches() > 0) {
    test_loader_ = make_test_loader_();
    skipped_elsewhere_ += test_loader_ ? test_loader_->skipped_images() : 0;
  }
  require_watched_values();
  require_whole_module();
  if (options_.profiler.kind == Profiler::kTrace && strategy_.group().rank() == 0) {
    operations_.emplace(options_.profiler, !options_.device.is_cpu());
  }
  if (!options_.trace.file.empty()) {
    trace_.emplace(options_.trace, strategy_.group().rank() == 0, !options_.device.is_cpu());
  }
  // The strategy and the optimizer must see the parameters in their final place.
  {
    const SecondsScope scope(info_.setup.model);
    strategy_.place(task_.module(), options_.device);
  }
  open_checkpoints();
  summarize_module();
  prepare_average();
  const NamedTensors resumed = options_.resume ? resume() : NamedTensors();
  couple();
  watch_gpus();
  if (options_.resume) optimizer_->load_state(resumed);
  if (scaler_) optimizer_->agree_through(*scaler_);
  prepare_graph();
  prepare_checkpoints();
}

// Makes the module's parallel form and the optimizer.
void TrainingRun::couple() {
  {
    const SecondsScope scope(info_.setup.model);
    strategy_.attach(task_, {.device = options_.device,
                             .precision = options_.precision,
                             .scaler = scaler_ ? &*scaler_ : nullptr,
                             .deterministic = options_.deterministic});
    if (strategy_.has_all_processors()) alone_.emplace();
    optimizer_ = strategy_.make_optimizer(options_.optimizer);
  }
  info_.setup.synchronization = strategy_.synchronization_seconds();
  info_.setup.model -= info_.setup.synchronization;
}

void TrainingRun::watch_gpus() {
  if (options_.device.is_cpu()) return;
  std::vector<torch::Device> devices = strategy_.devices();
  if (devices.empty()) devices.push_back(options_.device);
  std::set<int> indices;
  for (const torch::Device& device : devices) indices.insert(std::max<int>(device.index(), 0));
  gpus_.emplace(std::vector<int>(indices.begin(), indices.end()));
}

void TrainingRun::require_val_check_interval() const {
  const std::int64_t batches = batches_per_epoch();
  if (!options_.val_check_interval || *options_.val_check_interval <= batches) return;
  throw ConfigError(lockstep::str("Trainer: val_check_interval is ", *options_.val_check_interval,
                                  " batches, more than the ", batches,
                                  " that each rank has in an epoch; use at most ", batches,
                                  ", or check_val_every_n_epoch"));
}

void TrainingRun::prepare_average() {
  if (!options_.ema_decay) return;
  if (!strategy_.module_is_current()) {
    throw ConfigError(
        lockstep::str("Trainer: ema_decay averages the whole model on each rank, but "
                      "strategy ",
                      strategy_.name(),
                      " divides it among the ranks; use --strategy ddp or zero1, or "
                      "a pipeline in one process"));
  }
  ema_.emplace(task_.module(), *options_.ema_decay);
}

StateDict TrainingRun::averaged_state() {
  StateDict state;
  if (!ema_) return state;
  const AveragedWeights averaged(&*ema_);
  for (const auto& [name, tensor] : state_dict(task_.module())) {
    state.emplace_back(name, tensor.clone());
  }
  return state;
}

void TrainingRun::begin() {
  ProcessGroup& group = strategy_.group();
  info_.strategy = strategy_.name();
  info_.backend = group.size() == 1 ? "none" : group.backend();
  info_.precision = to_string(options_.precision);
  info_.device = options_.device.is_cpu() ? "cpu" : "cuda";
  info_.world_size = group.size();
  info_.accumulate_grad_batches = options_.accumulate_grad_batches;
  info_.learning_rate = plateau_ ? plateau_->lr() : base_lr_;
  info_.first_epoch = position_.epoch;
  info_.first_step = position_.step;
  info_.max_epochs = options_.max_epochs;
  info_.steps_per_epoch = steps_per_epoch();
  info_.parameters = trainable_scalars(task_.module());
  strategy_.describe(info_);
  tell([&](Listener& listener) { listener.on_run_begin(info_); });
  if (summary_) tell([&](Listener& listener) { listener.on_model_summary(*summary_); });
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

  task_.module().train();
  strategy_.train(true);
  {
    const PhaseScope scope(phases_.data, "begin epoch");
    const PhaseSecondsScope first(first_batch_seconds_);
    begin_epoch();
  }
  EpochReport report;
  Batch batch;
  while (!finished()) {
    const std::int64_t before = batches_done();
    const std::int64_t parts = std::min(options_.accumulate_grad_batches, batches_left());
    if (parts == 0) break;
    if (operations_) operations_->begin_step(steps_trained_);
    if (trace_) trace_->begin_step();
    const bool is_first = steps_trained_ == steps_before;
    if (!next_batch(batch, is_first)) break;
    train_step(batch, parts);
    note_time();
    report_step();
    tell_histograms();
    const bool evaluates = evaluation_is_due(before);
    if (evaluates) evaluate_in_epoch();
    if (checkpoint_is_due(evaluates)) {
      const EpochPause pause = pause_epoch();
      save();
    }
  }

  report.epoch = position_.epoch;
  report.steps = steps_trained_ - steps_before;
  settle_times();
  report.seconds = clock_.seconds();
  report.first_batch_seconds = first_batch_seconds_;
  measure_usage(report);
  sums_.all_reduce(strategy_.group(), options_.device);
  report.train_loss = sums_.mean().loss;
  report.images_per_second = static_cast<double>(images_) / report.seconds;
  report.phases = phases_;
  add_phases(phases_, all_phases_);
  if (batches_left() == 0) {
    ++position_.epoch;
    position_.step = 0;
  }
  return report;
}

namespace {

void add_known(const char* name, double value, Metrics& means) {
  const bool is_known = !std::isnan(value);
  means.add_sum(name, is_known ? value : 0.0, is_known ? 1 : 0);
}

std::optional<double> known_mean(const Evaluation& mean, const char* name) {
  const double value = mean.value_of(name).value_or(std::nan(""));
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

}  // namespace

// Means over the ranks. The means for GPUs exclude ranks whose driver reports nothing.
void TrainingRun::measure_usage(EpochReport& report) {
  const std::optional<GpuUsage> own = gpus_ ? gpus_->mean() : std::nullopt;
  const std::int64_t counts = own ? 1 : 0;
  const GpuUsage usage = own.value_or(GpuUsage{});
  Metrics means;
  const EpochClock::Use used = clock_.used();
  means.add_sum("processor seconds", used.computed, 1);
  add_known("processor waits", used.waited, means);
  add_known("busy processors", used.busy / report.seconds, means);
  means.add_sum("GPU", usage.utilisation, counts);
  means.add_sum("GPU memory", usage.memory_utilisation, counts);
  means.add_sum("GPU bytes", static_cast<double>(usage.memory_bytes), counts);
  means.add_sum("GPU power", usage.power_watts, counts);
  means.all_reduce(strategy_.group(), options_.device);
  const Evaluation mean = means.mean();
  report.processor_seconds = mean.value_of("processor seconds").value_or(0);
  report.processor_wait_seconds = known_mean(mean, "processor waits");
  report.busy_processors = known_mean(mean, "busy processors");
  const double utilisation = mean.value_of("GPU").value_or(std::nan(""));
  if (std::isnan(utilisation)) return;
  report.gpu = GpuUsage{.utilisation = utilisation,
                        .memory_utilisation = mean.value_of("GPU memory").value_or(0),
                        .memory_bytes = std::llround(mean.value_of("GPU bytes").value_or(0)),
                        .power_watts = mean.value_of("GPU power").value_or(0)};
}

// An evaluation made only because the run stops, within an epoch or between two epochs with an
// evaluation, decides nothing: a run resumed from there must equal one that was not stopped.
void TrainingRun::end_epoch(EpochReport& report) {
  const bool is_whole = position_.step == 0;
  const bool is_due = report.epoch % options_.check_val_every_n_epoch == 0;
  if (is_due || finished()) report.test = evaluate();
  if (is_whole) watch(is_due ? report.test : std::nullopt, report.train_loss);
  if (!report.test && finished()) report.test = evaluate();
  if (report.test) show_picture(report.epoch);
}

void TrainingRun::begin_epoch() {
  if (std::exchange(restored_, false)) return;
  train_loader_.set_epoch(loader_epoch(), position_.step * options_.accumulate_grad_batches);
}

// The loader restarts with each epoch, so its first batch has its own name in a trace.
bool TrainingRun::next_batch(Batch& batch, bool is_first) {
  const PhaseScope scope(phases_.data, is_first ? "wait for first batch" : "wait for data");
  std::optional<PhaseSecondsScope> first;
  if (is_first) first.emplace(first_batch_seconds_);
  RECORD_USER_SCOPE("lockstep: data");
  return train_loader_.next(batch);
}

// Runs a step of `parts` batches, starting with `batch`.
void TrainingRun::train_step(Batch& batch, std::int64_t parts) {
  const SpanScope span("step", "step", position_.total + 1);
  begin_step();
  if (captured_) {
    train_through_graph(batch, parts);
  } else {
    zero_gradients();
    for (std::int64_t part = 0; part < parts; ++part) {
      require_batch(batch, part, parts);
      train_part(moved(batch),
                 {.weight = 1.0 / static_cast<double>(parts), .is_last = part + 1 == parts});
    }
    update_parameters();
  }
  parts_ = parts;
  batches_trained_ += parts;
  ++steps_trained_;
  ++position_.step;
  ++position_.total;
  if (seconds_to_first_step_ == 0) seconds_to_first_step_ = command_seconds();
}

// The first batch of a step is already there; takes the following ones.
void TrainingRun::require_batch(Batch& batch, std::int64_t part, std::int64_t parts) {
  const bool there = part == 0 || next_batch(batch, /*is_first=*/false);
  LOCKSTEP_CHECK(there, "the epoch ends after ", part, " of ", parts, " batches of a step");
}

void TrainingRun::begin_step() {
  const SpanScope scope("bookkeeping", "phase");
  const double rate = plateau_ ? plateau_->lr() : base_lr_;
  optimizer_->set_lr(rate * learning_rate_factor(options_.schedule, position_.total,
                                                 steps_per_epoch(), schedule_steps()));
  momentum_ =
      scheduled_momentum(options_.schedule, position_.total, steps_per_epoch(), schedule_steps());
  if (momentum_) optimizer_->set_momentum(*momentum_);
  strategy_.seed(step_seed(options_.seed, position_.epoch, position_.step, share_.rank),
                 options_.device);
  loss_sum_ = torch::Tensor();
}

void TrainingRun::zero_gradients() {
  const PhaseScope scope(phases_.optimizer, "zero gradients");
  optimizer_->zero_grad();
}

// Waits of a sharded optimizer for other ranks count as communication.
void TrainingRun::update_parameters() {
  const double before = optimizer_->communication_seconds();
  {
    const PhaseScope scope(phases_.optimizer, "optimizer");
    RECORD_USER_SCOPE("lockstep: optimizer");
    optimizer_step();
    if (ema_) ema_->update();
  }
  const double waited = optimizer_->communication_seconds() - before;
  phases_.optimizer -= waited;
  phases_.communication += waited;
}

torch::Tensor TrainingRun::strategy_step(const Batch& batch, const StepPart& part) {
  RECORD_USER_SCOPE("lockstep: forward and backward");
  return strategy_.step(batch, part, phases_);
}

void TrainingRun::train_part(const Batch& batch, const StepPart& part) {
  count_loss(strategy_step(batch, part), batch);
}

void TrainingRun::count_loss(const torch::Tensor& loss, const Batch& batch) {
  const SpanScope scope("bookkeeping", "phase");
  loss_sum_ = loss_sum_.defined() ? loss_sum_ + loss : loss;
  images_ += batch.size * share_.size;
  if (!share_.counts) return;
  if (loss.is_cpu()) {
    sums_.add_sum("loss", loss.item<double>() * static_cast<double>(batch.size), batch.size);
  } else {
    sums_.add_sum("loss", loss * batch.size, batch.size);
  }
}

void TrainingRun::optimizer_step() {
  if (scaler_) scaler_->unscale_(optimizer_->gradients());
  if (options_.gradient_clip_norm) optimizer_->clip_grad_norm(*options_.gradient_clip_norm);
  if (options_.gradient_clip_value) {
    clip_grads_by_value_(optimizer_->gradients(), *options_.gradient_clip_value);
  }
  if (!scaler_) return optimizer_->step();
  if (optimizer_->can_skip_on_device()) {
    scaler_->step_on_device(*optimizer_);
  } else {
    scaler_->step(*optimizer_);
  }
  scaler_->update();
}

// Rank 0's clock decides, so that all ranks end with one step.
void TrainingRun::note_time() {
  if (!options_.max_time_seconds) return;
  // All ranks count equal steps, so either all of them read the clock or none does. The last step
  // of an epoch always reads it, because epochs may be shorter than the interval.
  const bool reads_now = options_.device.is_cpu() || batches_left() == 0 ||
                         position_.total % kDeviceClockInterval == 0;
  if (!reads_now) return;
  const bool over = seconds_since(start_) >= *options_.max_time_seconds;
  ProcessGroup& group = strategy_.group();
  if (group.size() == 1) {
    out_of_time_ = over;
    return;
  }
  const torch::Tensor flag = torch::tensor({over ? 1 : 0}, torch::kInt64).to(options_.device);
  group.broadcast(flag, 0);
  out_of_time_ = flag.item<std::int64_t>() != 0;
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
  if (early_stopping_ && early_stopping_->stopped()) return early_stopping_->reason();
  return lockstep::str("the time limit of ", *options_.max_time_seconds, " s has passed");
}

RunReport TrainingRun::finish(std::vector<EpochReport> epochs) {
  RunReport report;
  report.info = info_;
  report.already_complete = epochs.empty();
  writing_.wait();
  report.test = epochs.empty() ? evaluate() : epochs.back().test;
  report.epochs = std::move(epochs);
  report.stop_reason = stop_reason();
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

}  // namespace lockstep
