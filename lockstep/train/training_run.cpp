#include <lockstep/train/training_run.h>

#include <algorithm>
#include <limits>
#include <utility>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/train/checkpoint_space.h>
#include <lockstep/train/step_seed.h>

namespace lockstep {
namespace {

// On a GPU reading the loss waits for the device; a listener then sees it in every so many steps.
constexpr std::int64_t kDeviceReportInterval = 10;

const char* yes_or_no(bool value) { return value ? "yes" : "no"; }

std::int64_t trainable_scalars(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : distinct(module.parameters())) {
    if (parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

// "lr 0.1 (now 0.2)" for each value of `before` that is another one `now`.
std::vector<std::string> differing(const std::map<std::string, std::string>& before,
                                   const std::map<std::string, std::string>& now) {
  std::vector<std::string> differences;
  for (const auto& [name, value] : now) {
    const auto found = before.find(name);
    const std::string old = found == before.end() ? "unknown" : found->second;
    if (old != value) differences.push_back(lockstep::str(name, " ", old, " (now ", value, ")"));
  }
  return differences;
}

// Indices that all ranks had taken when the checkpoint was written; none from a checkpoint without
// them, or when the samples have another order now.
std::optional<std::int64_t> taken_in(const CheckpointInfo& checkpoint, const Sampler& sampler) {
  if (!checkpoint.settings.contains("sampler")) return std::nullopt;
  const SamplerPosition position = sampler_position(checkpoint.settings);
  if (position.sampler != sampler.describe()) return std::nullopt;
  return position.taken;
}

}  // namespace

TrainingRun::TrainingRun(const TrainerOptions& options, Strategy& strategy, Task& task,
                         Loader& train_loader, const Trainer::LoaderFactory& test_loader)
    : options_(options),
      strategy_(strategy),
      task_(task),
      train_loader_(train_loader),
      make_test_loader_(test_loader),
      info_(options.info),
      start_(Clock::now()) {
  if (options.precision == Precision::kFp16) scaler_.emplace(options.grad_scaler, options.device);
}

template <class Event>
void TrainingRun::tell(Event&& event) const {
  if (strategy_.group().rank() != 0) return;
  for (Listener* listener : options_.listeners) event(*listener);
}

std::int64_t TrainingRun::schedule_steps() const {
  return options_.max_epochs * train_loader_.steps_per_epoch();
}

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
  task_.module().to(options_.device);
  const NamedTensors resumed = options_.resume ? resume() : NamedTensors();
  strategy_.attach(task_.module());
  optimizer_ = strategy_.make_optimizer(task_.module(), options_.optimizer);
  base_lr_ = optimizer_->lr();
  if (options_.resume) optimizer_->load_state(resumed);
  if (scaler_) optimizer_->agree_through(*scaler_);
  require_space();
}

// Asks before training, so that a full disk does not end the run after its first epoch.
void TrainingRun::require_space() const {
  if (options_.checkpoint.empty() || strategy_.group().rank() != 0 || finished()) return;
  const std::int64_t steps = train_loader_.steps_per_epoch();
  const std::int64_t saves = (total_steps() - position_.total + position_.step + steps - 1) / steps;
  require_checkpoint_space(
      options_.checkpoint,
      checkpoint_bytes(task_.module(), *make_update_rule(options_.optimizer)), saves);
}

// Rank 0 reads, and returns what is the optimizer's. The strategy copies its parameters and buffers
// to the others, and the optimizer its state. Other hosts need not see the file.
NamedTensors TrainingRun::resume() {
  ProcessGroup& group = strategy_.group();
  CheckpointInfo checkpoint;
  NamedTensors of_optimizer;
  if (group.rank() == 0) {
    of_optimizer = Optimizer(task_.module(), options_.optimizer).state();
    checkpoint = load_checkpoint(options_.checkpoint, task_.module(), training_state(of_optimizer),
                                 info_.recipe);
    // Checkpoints of a time when there was nothing else do not say so.
    checkpoint.settings.merge(std::map<std::string, std::string>{
        {"loader", "native"}, {"mix", "none"}, {"fused_kernels", yes_or_no(info_.fused_kernels)}});
    const auto differences = differing(checkpoint.settings, settings());
    if (!differences.empty()) {
      log_warning("the run goes on but does not repeat the original, which was trained with ",
                  join(differences));
    }
  }
  std::optional<std::int64_t> taken = taken_in(checkpoint, train_loader_.sampler());
  if (group.size() > 1) {
    auto place = torch::tensor({checkpoint.epoch, checkpoint.step, taken.value_or(-1)}, torch::kInt64)
                     .to(options_.device);
    group.broadcast(place, 0);
    place = place.cpu();
    checkpoint.epoch = place[0].item<std::int64_t>();
    checkpoint.step = place[1].item<std::int64_t>();
    if (place[2].item<std::int64_t>() >= 0) taken = place[2].item<std::int64_t>();
    for (const auto& [name, tensor] : training_state({})) {
      torch::Tensor on_device = tensor.to(options_.device);
      group.broadcast(on_device, 0);
      if (!on_device.is_same(tensor)) tensor.copy_(on_device);
    }
  }
  const std::int64_t steps = train_loader_.steps_per_epoch();
  if (taken) {
    train_loader_.restore({train_loader_.sampler().describe(), checkpoint.epoch - 1, *taken});
    checkpoint.step = steps - train_loader_.steps_left();
    restored_ = train_loader_.steps_left() > 0;
    if (!restored_) {  // what is left makes no batch of this size
      ++checkpoint.epoch;
      checkpoint.step = 0;
    }
  }
  position_ = {.epoch = checkpoint.epoch,
               .step = checkpoint.step,
               .total = (checkpoint.epoch - 1) * steps + checkpoint.step};
  if (position_.step >= steps) {
    throw CheckpointError(lockstep::str(options_.checkpoint.string(), ": step ", position_.step,
                                        " is beyond this run's epoch of ", steps, " steps"));
  }
  return of_optimizer;
}

StateDict TrainingRun::training_state(NamedTensors of_optimizer) const {
  StateDict state = std::move(of_optimizer);
  if (!scaler_) return state;
  for (const auto& [name, tensor] : scaler_->state()) {
    state.emplace_back(std::string(kGradScalerState) + name, tensor);
  }
  return state;
}

std::map<std::string, std::string> TrainingRun::settings() const {
  std::map<std::string, std::string> settings = to_settings(options_.optimizer);
  settings.merge(std::map<std::string, std::string>{
      {"seed", std::to_string(options_.seed)},
      {"global_batch", std::to_string(info_.global_batch)},
      {"world_size", std::to_string(strategy_.group().size())},
      {"gradient_clip_norm",
       options_.gradient_clip_norm ? exact_text(*options_.gradient_clip_norm) : "none"},
      {"schedule", to_string(options_.schedule, options_.max_epochs)},
      {"precision", to_string(options_.precision)},
      {"dataset", info_.dataset},
      {"loader", to_string(train_loader_.options().engine)},
      {"mix", to_string(train_loader_.options().mix)},
      {"fused_kernels", yes_or_no(info_.fused_kernels)}});
  return settings;
}

void TrainingRun::begin() {
  ProcessGroup& group = strategy_.group();
  info_.strategy = strategy_.name();
  info_.backend = group.size() == 1 ? "none" : group.backend();
  info_.precision = to_string(options_.precision);
  info_.device = options_.device.is_cpu() ? "cpu" : "cuda";
  info_.world_size = group.size();
  info_.first_epoch = position_.epoch;
  info_.max_epochs = options_.max_epochs;
  info_.steps_per_epoch = train_loader_.steps_per_epoch();
  info_.parameters = trainable_scalars(task_.module());
  tell([&](Listener& listener) { listener.on_run_begin(info_); });
}

EpochReport TrainingRun::train_epoch() {
  sums_ = {};
  images_ = 0;
  communication_ = 0;
  for (Stopwatch* watch : {&data_, &forward_, &backward_, &broadcast_, &optimizer_watch_})
    watch->reset();
  const Clock::time_point start = Clock::now();

  task_.module().train();
  data_.start();
  begin_epoch();
  data_.stop();
  Batch batch;
  while (!finished()) {
    {
      const StopwatchScope scope(data_);
      if (!train_loader_.next(batch)) break;
    }
    train_step(moved(batch));
    report_step(seconds_since(start));
  }

  EpochReport report;
  report.epoch = position_.epoch;
  report.seconds = seconds_since(start);
  sums_.all_reduce(strategy_.group(), options_.device);
  report.train_loss = sums_.mean().loss;
  report.images_per_second = static_cast<double>(images_) / report.seconds;
  report.phases = {.data = data_.seconds(),
                   .forward = forward_.seconds(),
                   .backward = backward_.seconds() - communication_,
                   .communication = communication_ + broadcast_.seconds(),
                   .optimizer = optimizer_watch_.seconds()};
  if (train_loader_.steps_left() == 0) {
    ++position_.epoch;
    position_.step = 0;
  }
  return report;
}

void TrainingRun::begin_epoch() {
  if (std::exchange(restored_, false)) return;
  train_loader_.set_epoch(position_.epoch - 1, position_.step);
}

void TrainingRun::train_step(const Batch& batch) {
  optimizer_->set_lr(base_lr_ * learning_rate_factor(options_.schedule, position_.total,
                                                     train_loader_.steps_per_epoch(),
                                                     schedule_steps()));
  seed_generators(
      step_seed(options_.seed, position_.epoch, position_.step, strategy_.group().rank()),
      options_.device);

  optimizer_watch_.start();
  optimizer_->zero_grad();
  optimizer_watch_.stop();

  broadcast_.start();
  strategy_.before_forward();
  broadcast_.stop();

  forward_.start();
  torch::Tensor loss;
  {
    const AutocastScope autocast(options_.precision, options_.device.type());
    loss = task_.training_step(batch);
  }
  forward_.stop();

  const double communication = strategy_.communication_seconds();
  backward_.start();
  (scaler_ ? scaler_->scale(loss) : loss).backward();
  backward_.stop();
  communication_ += strategy_.communication_seconds() - communication;

  optimizer_watch_.start();
  optimizer_step();
  optimizer_watch_.stop();

  if (loss.is_cpu()) {
    last_loss_ = loss.item<double>();
    sums_.add(last_loss_ * static_cast<double>(batch.size), 0, batch.size);
  } else {
    if (position_.step % kDeviceReportInterval == 0) last_loss_ = loss.item<double>();
    sums_.add(loss.detach() * batch.size, {}, batch.size);
  }
  images_ += batch.size * strategy_.group().size();
  ++position_.step;
  ++position_.total;
  if (seconds_to_first_step_ == 0) seconds_to_first_step_ = command_seconds();
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
                             .steps_per_epoch = train_loader_.steps_per_epoch(),
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
  strategy_.before_forward();
  task_.module().eval();
  test_loader_->set_epoch(0);
  MetricSums sums;
  Batch batch;
  for (std::int64_t i = 0; i < test_batches() && test_loader_->next(batch); ++i) {
    task_.evaluation_step(moved(batch), sums);
  }
  sums.all_reduce(strategy_.group(), options_.device);
  return sums.mean();
}

void TrainingRun::save() {
  if (options_.checkpoint.empty()) return;
  const NamedTensors of_optimizer = optimizer_->state();
  if (strategy_.group().rank() != 0) return;
  auto saved = settings();
  // At the end of an epoch it is the beginning of the next that counts.
  saved.merge(to_settings(position_.step == 0
                              ? position_of(train_loader_.sampler(), position_.epoch - 1, 0)
                              : train_loader_.position()));
  save_checkpoint(options_.checkpoint, task_.module(), training_state(of_optimizer),
                  {.recipe = info_.recipe,
                   .epoch = position_.epoch,
                   .step = position_.step,
                   .settings = std::move(saved)});
}

// Of all ranks' loaders. Collective.
std::int64_t TrainingRun::skipped_images() const {
  const std::int64_t own =
      train_loader_.skipped_images() + (test_loader_ ? test_loader_->skipped_images() : 0);
  torch::Tensor sum = torch::tensor({own}, torch::kInt64).to(options_.device);
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
