// One optimizer step: its batches, the passes over them, and the update of the parameters.
#include <lockstep/train/training_run.h>

#include <cmath>
#include <optional>

#include <ATen/record_function.h>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/optimization/step_seed.h>

namespace lockstep::train {
namespace {

// The name of the span in a trace, in which on_nan looks at a step.
constexpr const char* kFiniteCheck = "finite check";

}  // namespace

// The loader restarts with each epoch, so its first batch has its own name in a trace.
bool TrainingRun::next_batch(Batch& batch, bool is_first) {
  const PhaseScope scope(phases_.data, is_first ? "wait for first batch" : "wait for data");
  std::optional<PhaseSecondsScope> first;
  if (is_first) first.emplace(first_batch_seconds_);
  RECORD_USER_SCOPE("lockstep: data");
  return train_loader_.next(batch);
}

Batch TrainingRun::moved(const Batch& batch) const {
  if (options_.device.is_cpu()) return batch;
  // The host must not proceed while the device may still read pinned memory, because the loader
  // refills it. A loader on the run's own device returns no pinned memory.
  return {.images = batch.images.to(options_.device, /*non_blocking=*/!batch.images.is_pinned()),
          .labels = batch.labels.to(options_.device, /*non_blocking=*/!batch.labels.is_pinned()),
          .size = batch.size};
}

// Runs a step of `parts` batches, starting with `batch`.
void TrainingRun::train_step(Batch& batch, std::int64_t parts) {
  const SpanScope span("step", "step", position_.total + 1);
  begin_step();
  if (captured_) {
    train_through_graph(batch, parts);
  } else {
    zero_gradients();
    keep_buffers();
    for (std::int64_t part = 0; part < parts; ++part) {
      require_batch(batch, part, parts);
      train_part(moved(batch),
                 {.weight = 1.0 / static_cast<double>(parts), .is_last = part + 1 == parts});
    }
    update_if_finite();
  }
  add_losses();
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
  step_losses_.clear();
}

// They get their values back if the step is skipped.
void TrainingRun::keep_buffers() {
  if (!finite_steps_.skips()) return;
  const PhaseScope scope(phases_.optimizer, kFiniteCheck);
  finite_steps_.begin_step(task_.module());
}

// The epoch's mean loss does not contain a skipped step.
void TrainingRun::update_if_finite() {
  if (options_.on_nan == OnNan::kWarn) return update_parameters();
  FiniteSteps::Step step{.loss = loss_sum_,
                         .place = place_of_step(position_.epoch, position_.step + 1)};
  if (!scaler_) step.gradients = [this] { return optimizer_->gradients(); };
  bool is_allowed = false;
  in_optimizer_phase(kFiniteCheck,
                     [&] { is_allowed = finite_steps_.allows(step, strategy_.group()); });
  if (is_allowed) {
    update_parameters();
  } else {
    step_losses_.clear();
  }
}

// "step 3 of epoch 2 (step 15 of the run)".
std::string TrainingRun::place_of_step(std::int64_t epoch, std::int64_t step) const {
  return lockstep::str("step ", step, " of epoch ", epoch, " (step ",
                       (epoch - 1) * steps_per_epoch() + step, " of the run)");
}

void TrainingRun::zero_gradients() {
  const PhaseScope scope(phases_.optimizer, "zero gradients");
  optimizer_->zero_grad();
}

void TrainingRun::update_parameters() {
  in_optimizer_phase("optimizer", [this] {
    RECORD_USER_SCOPE("lockstep: optimizer");
    optimizer_step();
    if (ema_) ema_->update();
  });
}

// Waits of a sharded optimizer, and of the check of a step, for other ranks count as communication.
void TrainingRun::in_optimizer_phase(const char* span, const std::function<void()>& work) {
  const auto waits = [this] {
    return optimizer_->communication_seconds() + finite_steps_.communication_seconds();
  };
  const double before = waits();
  {
    const PhaseScope scope(phases_.optimizer, span);
    work();
  }
  const double waited = waits() - before;
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
  step_losses_.emplace_back(loss, batch.size);
  images_ += batch.size * share_.size;
}

// Adds the losses of the step to the sums of the epoch.
void TrainingRun::add_losses() {
  if (!share_.counts) return;
  for (const auto& [loss, samples] : step_losses_) {
    if (loss.is_cpu()) {
      const auto value = loss.item<double>();
      sums_.add_sum("loss", value * static_cast<double>(samples), samples);
      if (std::isfinite(value)) continue;
      finite_steps_.note(value, place_of_step(position_.epoch, position_.step + 1));
    } else {
      sums_.add_sum("loss", loss * samples, samples);
    }
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

}  // namespace lockstep::train
