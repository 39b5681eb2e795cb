#include <lockstep/train/training_run.h>

#include <algorithm>
#include <limits>
#include <utility>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/train/step_seed.h>

namespace lockstep {
namespace {

// On a GPU reading the loss waits for the device, so listeners get a new one after this many steps.
constexpr std::int64_t kDeviceReportInterval = 10;

std::int64_t trainable_scalars(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : distinct(module.parameters())) {
    if (parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

}  // namespace

TrainingRun::TrainingRun(const TrainerOptions& options, Strategy& strategy, Task& task,
                         Loader& train_loader, const Trainer::LoaderFactory& test_loader)
    : options_(options),
      strategy_(strategy),
      task_(task),
      train_loader_(train_loader),
      make_test_loader_(test_loader),
      share_(strategy.data_share()),
      info_(options.info),
      start_(Clock::now()) {
  if (options.precision == Precision::kFp16) scaler_.emplace(options.grad_scaler, options.device);
}

template <class Event>
void TrainingRun::tell(Event&& event) const {
  if (strategy_.group().rank() != 0) return;
  for (Listener* listener : options_.listeners) event(*listener);
}

// The last step of an epoch has what is left of its batches.
std::int64_t TrainingRun::steps_of(std::int64_t batches) const {
  const std::int64_t each = options_.accumulate_grad_batches;
  return (batches + each - 1) / each;
}

std::int64_t TrainingRun::steps_per_epoch() const {
  return steps_of(train_loader_.steps_per_epoch());
}

std::int64_t TrainingRun::steps_left() const { return steps_of(train_loader_.steps_left()); }

std::int64_t TrainingRun::schedule_steps() const { return options_.max_epochs * steps_per_epoch(); }

std::int64_t TrainingRun::total_steps() const {
  return std::min(schedule_steps(), options_.max_steps.value_or(schedule_steps()));
}

std::int64_t TrainingRun::test_batches() const {
  return options_.limit_test_batches.value_or(std::numeric_limits<std::int64_t>::max());
}

bool TrainingRun::finished() const { return position_.total >= total_steps(); }

double TrainingRun::command_seconds() const { return options_.command_seconds(); }

Batch TrainingRun::moved(const Batch& batch) const {
  if (options_.device.is_cpu()) return batch;
  return {.images = batch.images.to(options_.device, /*non_blocking=*/true),
          .labels = batch.labels.to(options_.device, /*non_blocking=*/true),
          .size = batch.size};
}

RunReport TrainingRun::run() {
  prepare();
  begin();
  std::vector<EpochReport> epochs;
  while (!finished()) {
    EpochReport report = train_epoch();
    report.test = evaluate();
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
  // What its engine cannot do is told before the first epoch, not after it.
  if (make_test_loader_ && test_batches() > 0) test_loader_ = make_test_loader_();
  // The strategy and the optimizer must see the parameters where they will stay.
  strategy_.place(task_.module(), options_.device);
  const NamedTensors resumed = options_.resume ? resume() : NamedTensors();
  strategy_.attach(task_, {.device = options_.device,
                           .precision = options_.precision,
                           .scaler = scaler_ ? &*scaler_ : nullptr});
  optimizer_ = strategy_.make_optimizer(options_.optimizer);
  base_lr_ = optimizer_->lr();
  if (options_.resume) optimizer_->load_state(resumed);
  if (scaler_) optimizer_->agree_through(*scaler_);
  require_space();
}

void TrainingRun::begin() {
  ProcessGroup& group = strategy_.group();
  info_.strategy = strategy_.name();
  info_.backend = group.size() == 1 ? "none" : group.backend();
  info_.precision = to_string(options_.precision);
  info_.device = options_.device.is_cpu() ? "cpu" : "cuda";
  info_.world_size = group.size();
  info_.accumulate_grad_batches = options_.accumulate_grad_batches;
  info_.first_epoch = position_.epoch;
  info_.max_epochs = options_.max_epochs;
  info_.steps_per_epoch = steps_per_epoch();
  info_.parameters = trainable_scalars(task_.module());
  strategy_.describe(info_);
  tell([&](Listener& listener) { listener.on_run_begin(info_); });
}

EpochReport TrainingRun::train_epoch() {
  sums_ = {};
  images_ = 0;
  phases_ = {};
  const Clock::time_point start = Clock::now();

  task_.module().train();
  strategy_.train(true);
  {
    const SecondsScope scope(phases_.data);
    begin_epoch();
  }
  Batch batch;
  while (!finished()) {
    const std::int64_t parts =
        std::min(options_.accumulate_grad_batches, train_loader_.steps_left());
    if (!next_batch(batch)) break;
    train_step(batch, parts);
    report_step(seconds_since(start));
  }

  EpochReport report;
  report.epoch = position_.epoch;
  report.seconds = seconds_since(start);
  sums_.all_reduce(strategy_.group(), options_.device);
  report.train_loss = sums_.mean().loss;
  report.images_per_second = static_cast<double>(images_) / report.seconds;
  report.phases = phases_;
  if (train_loader_.steps_left() == 0) {
    ++position_.epoch;
    position_.step = 0;
  }
  return report;
}

void TrainingRun::begin_epoch() {
  if (std::exchange(restored_, false)) return;
  train_loader_.set_epoch(position_.epoch - 1, position_.step * options_.accumulate_grad_batches);
}

bool TrainingRun::next_batch(Batch& batch) {
  const SecondsScope scope(phases_.data);
  return train_loader_.next(batch);
}

// Makes a step of `parts` batches: `batch` and those that follow it.
void TrainingRun::train_step(Batch& batch, std::int64_t parts) {
  begin_step();
  for (std::int64_t part = 0; part < parts; ++part) {
    const bool there = part == 0 || next_batch(batch);
    LOCKSTEP_CHECK(there, "the epoch ends after ", part, " of ", parts, " batches of a step");
    train_part(moved(batch),
               {.weight = 1.0 / static_cast<double>(parts), .is_last = part + 1 == parts});
  }
  {
    const SecondsScope scope(phases_.optimizer);
    optimizer_step();
  }
  if (loss_sum_.is_cpu() || position_.step % kDeviceReportInterval == 0) {
    last_loss_ = loss_sum_.item<double>() / static_cast<double>(parts);
  }
  ++position_.step;
  ++position_.total;
  if (seconds_to_first_step_ == 0) seconds_to_first_step_ = command_seconds();
}

void TrainingRun::begin_step() {
  optimizer_->set_lr(base_lr_ * learning_rate_factor(options_.schedule, position_.total,
                                                     steps_per_epoch(), schedule_steps()));
  strategy_.seed(step_seed(options_.seed, position_.epoch, position_.step, share_.rank),
                 options_.device);
  loss_sum_ = torch::Tensor();
  const SecondsScope scope(phases_.optimizer);
  optimizer_->zero_grad();
}

void TrainingRun::train_part(const Batch& batch, const StepPart& part) {
  const torch::Tensor loss = strategy_.step(batch, part, phases_);
  loss_sum_ = loss_sum_.defined() ? loss_sum_ + loss : loss;
  images_ += batch.size * share_.size;
  if (!share_.counts) return;
  if (loss.is_cpu()) {
    sums_.add(loss.item<double>() * static_cast<double>(batch.size), 0, batch.size);
  } else {
    sums_.add(loss * batch.size, {}, batch.size);
  }
}

void TrainingRun::optimizer_step() {
  if (scaler_) scaler_->unscale_(optimizer_->gradients());
  if (options_.gradient_clip_norm) optimizer_->clip_grad_norm(*options_.gradient_clip_norm);
  if (!scaler_) return optimizer_->step();
  scaler_->step(*optimizer_);
  scaler_->update();
}

void TrainingRun::report_step(double epoch_seconds) {
  const StepReport report = {.epoch = position_.epoch,
                             .step = position_.step,
                             .steps_per_epoch = steps_per_epoch(),
                             .loss = last_loss_,
                             .learning_rate = optimizer_->lr(),
                             .images = images_,
                             .seconds = epoch_seconds};
  tell([&](Listener& listener) { listener.on_step(report); });
}

std::optional<Evaluation> TrainingRun::evaluate() {
  if (!test_loader_) return std::nullopt;
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(options_.precision, options_.device.type());
  // The last step changed each rank's buffers in its own way; all are judged with rank 0's.
  strategy_.begin_evaluation();
  task_.module().eval();
  strategy_.train(false);
  test_loader_->set_epoch(0);
  MetricSums sums;
  Batch batch;
  for (std::int64_t i = 0; i < test_batches() && test_loader_->next(batch); ++i) {
    strategy_.evaluate(moved(batch), sums);
  }
  sums.all_reduce(strategy_.group(), options_.device);
  return sums.mean();
}

// The sum over all ranks' loaders, where ranks that share their data count once. Collective.
std::int64_t TrainingRun::skipped_images() const {
  const std::int64_t own =
      train_loader_.skipped_images() + (test_loader_ ? test_loader_->skipped_images() : 0);
  torch::Tensor sum = torch::tensor({share_.counts ? own : 0}, torch::kInt64).to(options_.device);
  strategy_.group().all_reduce(sum);
  return sum.item<std::int64_t>();
}

RunReport TrainingRun::finish(std::vector<EpochReport> epochs) {
  RunReport report;
  report.info = info_;
  report.already_complete = epochs.empty();
  report.test = epochs.empty() ? evaluate() : epochs.back().test;
  report.epochs = std::move(epochs);
  report.seconds_to_first_step = seconds_to_first_step_;
  report.peak_rss_bytes = peak_rss_bytes();
  // Nobody leaves while others still evaluate or save: this waits for all.
  report.skipped_images = skipped_images();
  report.seconds_total = command_seconds();
  tell([&](Listener& listener) { listener.on_run_end(report); });
  return report;
}

}  // namespace lockstep
