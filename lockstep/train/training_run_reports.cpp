#include <lockstep/train/training_run.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/train/task/summarize.h>

namespace lockstep::train {
namespace {

torch::Device device_of(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().device();
}

// Nothing for a tensor that has no histogram.
std::optional<RunHistogram> histogram_of(std::string name, const torch::Tensor& tensor) {
  if (tensor.layout() != torch::kStrided || !tensor.is_floating_point()) return std::nullopt;
  const torch::Tensor values =
      tensor.detach().resolve_neg().to(torch::kCPU, torch::kFloat32).contiguous();
  Histogram histogram = make_histogram(std::span<const float>(
      values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())));
  if (histogram.counts.empty()) return std::nullopt;
  return RunHistogram{.name = std::move(name), .histogram = std::move(histogram)};
}

}  // namespace

// Called once a step has been counted. On a device the loss is not available yet; only the last
// step of an epoch waits for it.
void TrainingRun::report_step() {
  const bool is_last = batches_left() == 0 || finished();
  const bool is_due = position_.step % options_.log_every_n_steps == 0 || is_last;
  if (is_due && has_audience()) {
    StepReport report = {.epoch = position_.epoch,
                         .step = position_.step,
                         .steps_per_epoch = steps_per_epoch(),
                         .learning_rate = (*optimizer_)->lr(),
                         .momentum = momentum_,
                         .images = images_,
                         .seconds = clock_.seconds()};
    if (loss_sum_.is_cpu()) {
      report.loss = loss_sum_.item<double>() / static_cast<double>(parts_);
      tell([&](Listener& listener) { listener.on_step(report); });
    } else {
      late_reports_.add(report, loss_sum_, parts_);
    }
  }
  tell_late_reports(/*all=*/is_last);
}

// Sends reports whose losses have arrived, or with `all` waits for all of them.
void TrainingRun::tell_late_reports(bool all) {
  while (!late_reports_.empty() && (all || late_reports_.has_one())) {
    StepReport report = late_reports_.take();
    report.seconds = clock_.seconds();
    if (!std::isfinite(report.loss)) {
      finite_steps_.note(report.loss, place_of_step(report.epoch, report.step));
    }
    tell([&](Listener& listener) { listener.on_step(report); });
  }
}

// Called at the end of an epoch, whose time ends when the device has finished the last step.
void TrainingRun::settle_times() {
  tell_late_reports(/*all=*/true);
  if (device_timer_) device_timer_->settle();
  strategy_.settle_phases(phases_);
}

// Called before the loader is at the training's start position. All ranks run the model, because a
// task's evaluation may be collective.
void TrainingRun::summarize_module() {
  if (options_.model_summary_depth == 0) return;
  torch::nn::Module& module = task_.module();
  const torch::Device device = device_of(module);
  const std::int64_t skipped = train_loader_.skipped_images();
  train_loader_.set_epoch(loader_epoch());
  const LoadedBatch* const loaded = train_loader_.next_loaded();
  LOCKSTEP_CHECK(loaded != nullptr, "the training loader gives no batch");
  LoadedBatch batch = *loaded;
  for (torch::Tensor& tensor : batch.tensors) {
    if (tensor.defined()) tensor = tensor.to(device);
  }
  summary_ = summarize(module, options_.model_summary_depth, [&] {
    const AutocastScope autocast(options_.precision, device.type());
    if (auto* const with_output = dynamic_cast<detail::OutputTaskBase*>(&task_)) {
      return with_output->output(module, with_output->output_batch(batch).inputs);
    }
    Metrics ignored(task_.metrics());
    task_.loaded_evaluation_step(batch, ignored);
    return torch::Tensor();
  });
  skipped_elsewhere_ += train_loader_.skipped_images() - skipped;
}

void TrainingRun::require_whole_module() const {
  if (options_.log_histograms_every_n_steps == 0 || strategy_.module_is_current()) return;
  throw ConfigError(
      lockstep::str("Trainer: log_histograms_every_n_steps looks at the whole model on "
                    "rank 0, but strategy ",
                    strategy_.name(),
                    " divides it among the ranks; remove this option, or use strategy ddp "
                    "or a pipeline in one process"));
}

// Called once a step has been counted: the parameters are new, and the gradients are those that the
// optimizer used.
void TrainingRun::tell_histograms() {
  const std::int64_t every = options_.log_histograms_every_n_steps;
  if (every == 0 || position_.total % every != 0) return;
  if (!has_audience()) return;
  tell_late_reports(/*all=*/true);
  HistogramReport report = {
      .epoch = position_.epoch, .step = position_.step, .steps_per_epoch = steps_per_epoch()};
  const auto add = [&](std::string name, const torch::Tensor& tensor) {
    auto found = histogram_of(std::move(name), tensor);
    if (found) report.histograms.push_back(*std::move(found));
  };
  for (const auto& [name, parameter] : trainable_parameters(task_.module())) {
    add("parameters/" + name, parameter);
    const bool has_gradient = strategy_.module_has_gradients() && parameter.grad().defined();
    if (has_gradient) add("gradients/" + name, parameter.grad());
  }
  tell([&](Listener& listener) { listener.on_histograms(report); });
}

// Rank 0's actions since fit() was called.
std::vector<ProfiledAction> TrainingRun::profile() const {
  std::vector<ProfiledAction> actions = {
      {.name = "data", .calls = batches_trained_, .seconds = all_phases_.data},
      {.name = "forward", .calls = batches_trained_, .seconds = all_phases_.forward},
      {.name = "backward", .calls = batches_trained_, .seconds = all_phases_.backward},
      {.name = "communication", .calls = batches_trained_, .seconds = all_phases_.communication},
      {.name = "optimizer", .calls = steps_trained_, .seconds = all_phases_.optimizer},
      {.name = "evaluation", .calls = evaluations_.calls, .seconds = evaluations_.seconds},
      {.name = "checkpoint", .calls = checkpoints_.calls, .seconds = checkpoints_.seconds}};
  double rest = seconds_since(start_);
  for (const ProfiledAction& action : actions) rest -= action.seconds;
  actions.push_back({.name = "other", .calls = 1, .seconds = std::max(rest, 0.0)});
  return actions;
}

}  // namespace lockstep::train
