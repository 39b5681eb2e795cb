// One optimizer step: its batches, the passes over them, and the update of the parameters.
#include <lockstep/train/training_run.h>

#include <cmath>
#include <cstddef>
#include <optional>

#include <ATen/record_function.h>

#include <lockstep/core/error.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/optim/clip_grad.h>
#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/optimization/step_seed.h>
#include <lockstep/train/optimization/trained_alone.h>

namespace lockstep::train {
namespace {

// The name of the span in a trace, in which on_nan looks at a step.
constexpr const char* kFiniteCheck = "finite check";

}  // namespace

// The loader restarts with each epoch, so its first batch has its own name in a trace.
const LoadedBatch* TrainingRun::next_batch(bool is_first) {
  const PhaseScope scope(phases_.data, is_first ? "wait for first batch" : "wait for data");
  std::optional<PhaseSecondsScope> first;
  if (is_first) first.emplace(first_batch_seconds_);
  RECORD_USER_SCOPE("lockstep: data");
  return train_loader_.next_loaded();
}

LoadedBatch TrainingRun::moved(const LoadedBatch& batch) const {
  LoadedBatch there = batch;
  if (options_.device.is_cpu()) return there;
  // The host must not proceed while the device may still read pinned memory, because the loader
  // refills it. A loader on the run's own device returns no pinned memory.
  for (torch::Tensor& tensor : there.tensors) {
    if (!tensor.defined()) continue;
    tensor = tensor.to(options_.device, /*non_blocking=*/!tensor.is_pinned());
  }
  return there;
}

// Runs a step of `parts` batches, starting with `first`.
void TrainingRun::train_step(const LoadedBatch& first, std::int64_t parts) {
  const SpanScope span("step", "step", position_.total + 1);
  begin_step();
  const TrainedAlone alone(plan_.parameters(), task_.optimizer_index());
  if (captured_) {
    train_through_graph(first, parts);
  } else {
    zero_gradients();
    keep_buffers();
    for (std::int64_t part = 0; part < parts; ++part) {
      train_part(moved(require_batch(first, part, parts)),
                 {.weight = 1.0 / static_cast<double>(parts),
                  .is_last = part + 1 == parts,
                  .optimizer = task_.optimizer_index()});
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
const LoadedBatch& TrainingRun::require_batch(const LoadedBatch& first, std::int64_t part,
                                              std::int64_t parts) {
  const LoadedBatch* const batch = part == 0 ? &first : next_batch(/*is_first=*/false);
  LOCKSTEP_CHECK(batch != nullptr, "the epoch ends after ", part, " of ", parts,
                 " batches of a step");
  return *batch;
}

void TrainingRun::begin_step() {
  const SpanScope scope("bookkeeping", "phase");
  const double rate = plateau_ ? plateau_->lr() : base_lr_;
  const std::size_t index = plan_.index_at(position_.total);
  optimizer_->choose(index);
  task_.set_optimizer_index(index);
  plan_.set_rates(
      **optimizer_, index, rate,
      learning_rate_factor(options_.schedule, position_.total, steps_per_epoch(), schedule_steps()),
      {.step = position_.total,
       .steps_per_epoch = steps_per_epoch(),
       .total_steps = schedule_steps()});
  momentum_ =
      scheduled_momentum(options_.schedule, position_.total, steps_per_epoch(), schedule_steps());
  if (momentum_) (*optimizer_)->set_momentum(*momentum_);
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
  if (!scaler_) step.gradients = [this] { return (*optimizer_)->gradients(); };
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
  (*optimizer_)->zero_grad();
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

torch::Tensor TrainingRun::strategy_step(const LoadedBatch& batch, const StepPart& part) {
  RECORD_USER_SCOPE("lockstep: forward and backward");
  return strategy_.step(batch, part, phases_);
}

void TrainingRun::train_part(const LoadedBatch& batch, const StepPart& part) {
  count_loss(strategy_step(batch, part), batch);
}

void TrainingRun::count_loss(const torch::Tensor& loss, const LoadedBatch& batch) {
  const SpanScope scope("bookkeeping", "phase");
  loss_sum_ = loss_sum_.defined() ? loss_sum_ + loss : loss;
  const std::int64_t samples = task_.loaded_batch_size(batch);
  step_losses_.emplace_back(loss, samples);
  images_ += samples * share_.size;
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
  RunOptimizer& optimizer = **optimizer_;
  if (scaler_) scaler_->unscale_(optimizer.gradients());
  if (options_.gradient_clip_norm) optimizer.clip_grad_norm(*options_.gradient_clip_norm);
  if (options_.gradient_clip_value) {
    clip_grads_by_value_(optimizer.gradients(), *options_.gradient_clip_value);
  }
  if (!scaler_) return optimizer.step();
  if (optimizer.can_skip_on_device()) {
    scaler_->step_on_device(optimizer);
  } else {
    scaler_->step(optimizer);
  }
  scaler_->update();
}

}  // namespace lockstep::train
