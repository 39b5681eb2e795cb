// What a run does before its first step: it makes its parts in order and collects its facts.
#include <lockstep/train/training_run.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/optim/distinct.h>
#include <lockstep/program/program.h>
#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/optimization/slow_precision.h>
#include <lockstep/train/task/summarize.h>

namespace lockstep::train {
namespace {

std::int64_t trainable_scalars(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : optim::distinct(module.parameters())) {
    if (parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

// The calls of exported programs in `module` that cannot follow its mode; empty if all can.
std::string fixed_modes_text(const torch::nn::Module& module) {
  std::string first;
  std::int64_t count = 0;
  const auto add = [&](const torch::nn::Module& part) {
    const auto* const program = part.as<ProgramImpl>();
    if (program == nullptr || program->fixed_modes().empty()) return;
    if (first.empty()) first = program->fixed_modes().front();
    count += static_cast<std::int64_t>(program->fixed_modes().size());
  };
  add(module);
  for (const auto& part : module.modules(/*include_self=*/false)) add(*part);
  return count > 1 ? lockstep::str(first, ", and ", amount_of(count - 1, "other call")) : first;
}

}  // namespace

// Fills in what the caller has left out.
void TrainingRun::complete_info() {
  const LoaderOptions& of_loader = train_loader_.options();
  if (info_.global_batch == 0) info_.global_batch = of_loader.batch_size * share_.size;
  if (info_.loader.empty()) info_.loader = to_string(of_loader.engine);
  if (info_.threads_per_rank == 0) info_.threads_per_rank = at::get_num_threads();
  if (!info_.recipe_options.contains("model")) {
    info_.provenance.try_emplace("model", type_name_of(task_.module()));
  }
  if (!options_.early_stopping) return;
  const EarlyStoppingOptions& stopping = *options_.early_stopping;
  info_.provenance["early_stopping"] =
      lockstep::str(stopping.monitor, ':', stopping.patience, ':', to_string(stopping.mode));
}

void TrainingRun::prepare() {
  if (train_loader_.steps_per_epoch() < 1) {
    throw ConfigError(
        "Trainer: the training loader has no batches; use a smaller LoaderOptions::batch_size");
  }
  require_val_check_interval();
  // An engine that cannot load the test data fails before the first epoch, not after it.
  if (make_test_loader_ && test_batches() > 0) {
    test_loader_ = make_test_loader_();
    skipped_elsewhere_ += test_loader_ ? test_loader_->skipped_images() : 0;
  }
  require_watched_values();
  require_whole_module();
  // The strategy and the optimizer must see the parameters in their final place.
  {
    const SecondsScope scope(info_.setup.model);
    strategy_.place(task_.module(), options_.device);
  }
  open_checkpoints();
  summarize_module();
  prepare_average();
  const NamedTensors resumed = resumes_ ? resume() : NamedTensors();
  begin_traces();
  couple();
  watch_gpus();
  if (resumes_) optimizer_->load_state(resumed);
  if (scaler_) optimizer_->agree_through(*scaler_);
  prepare_graph();
}

// A run that is already complete has no step to record. It keeps the files of its steps.
void TrainingRun::begin_traces() {
  if (already_complete()) return;
  const bool writes = strategy_.group().rank() == 0;
  const bool on_gpu = !options_.device.is_cpu();
  if (options_.profiler.kind == Profiler::kTrace && writes) {
    operations_.emplace(options_.profiler, on_gpu);
  }
  if (!options_.trace.file.empty()) trace_.emplace(options_.trace, writes, on_gpu);
}

// Makes the module's parallel form and the optimizers.
void TrainingRun::couple() {
  if (plan_.size() > 1 && !strategy_.takes_several_optimizers()) {
    throw ConfigError(lockstep::str("strategy ", strategy_.name(),
                                    " steps all parameters with one optimizer, but "
                                    "configure_optimizers() returns ",
                                    plan_.size(), "; use strategy single or ddp"));
  }
  {
    const SecondsScope scope(info_.setup.model);
    strategy_.attach(task_, {.device = options_.device,
                             .precision = options_.precision,
                             .scaler = scaler_ ? &*scaler_ : nullptr,
                             .deterministic = options_.deterministic,
                             .parameters_of_optimizers = plan_.parameters()});
    if (strategy_.has_all_processors()) alone_.emplace();
    std::vector<std::unique_ptr<RunOptimizer>> optimizers;
    for (std::size_t i = 0; i < plan_.size(); ++i) {
      optimizers.push_back(plan_.is_own(i)
                               ? strategy_.make_own_optimizer(plan_.parameters_of(i), plan_.make(i))
                               : strategy_.make_optimizer(plan_.groups(i)));
    }
    optimizer_.emplace(plan_, std::move(optimizers));
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
                      " divides it among the ranks; use strategy ddp or zero1, or "
                      "a pipeline in one process"));
  }
  ema_.emplace(task_.module(), *options_.ema_decay);
}

void TrainingRun::begin() {
  ProcessGroup& group = strategy_.group();
  info_.strategy = strategy_.name();
  info_.backend = group.size() == 1 ? "none" : group.backend();
  info_.precision = to_string(options_.precision);
  info_.device = options_.device.is_cpu() ? "cpu" : "cuda";
  if (options_.device.is_cpu()) info_.slow_precisions = slow_precisions();
  info_.world_size = group.size();
  info_.accumulate_grad_batches = options_.accumulate_grad_batches;
  info_.learning_rate = plateau_ ? plateau_->lr() : (*optimizer_)->lr();
  info_.first_epoch = position_.epoch;
  info_.first_step = position_.step;
  info_.already_complete = already_complete();
  info_.max_epochs = options_.max_epochs;
  info_.steps_per_epoch = steps_per_epoch();
  info_.parameters = trainable_scalars(task_.module());
  strategy_.describe(info_);
  tell([&](Listener& listener) { listener.on_run_begin(info_); });
  if (summary_) tell([&](Listener& listener) { listener.on_model_summary(*summary_); });
}

// Modules keep the modes that they have here, as with Lightning.
void TrainingRun::begin_training() {
  if (finished()) return;
  task_.on_train_start();
  strategy_.follow_modes();
  const std::string slow = slow_precision_text(options_.precision, info_.slow_precisions);
  if (!slow.empty() && strategy_.group().rank() == 0) {
    log_warning("Trainer: ", slow, ": precision ", info_.precision,
                " on this device only shows the results that a GPU would compute");
  }
  if (strategy_.group().rank() != 0) return;
  if (const std::string fixed = fixed_modes_text(task_.module()); !fixed.empty()) {
    log_warning(
        "Trainer: the export has fixed the mode of some calls of the program, which may "
        "therefore behave differently from Python in training: ",
        fixed, "; if the model was exported in evaluation mode, export it in training mode");
  }
  if (task_.module().is_training()) return;
  log_warning(
      "Trainer: the task's module is in evaluation mode, in which the run trains it, for instance "
      "without dropout; unless that is intended, call train() on it before fit()");
}

}  // namespace lockstep::train
