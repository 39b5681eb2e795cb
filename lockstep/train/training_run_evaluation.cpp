#include <lockstep/train/training_run.h>

#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/suggestion.h>
#include <lockstep/core/trace/span_recorder.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <lockstep/train/measuring/phase_scope.h>
#include <lockstep/train/task/module_modes.h>

namespace lockstep::train {
namespace {

constexpr const char* kTrainLoss = "train_loss";

// Prefixes of the messages about the value that each of them watches. The program puts its flags in
// their place.
constexpr const char* kPlateauOwner = "PlateauOptions::monitor";
constexpr const char* kStoppingOwner = "TrainerOptions::early_stopping";
constexpr const char* kBestOwner = "CheckpointOptions::save_top_k";

std::vector<std::string> value_names_of(const Evaluation& evaluation) {
  std::vector<std::string> names;
  if (evaluation.has_loss) names.emplace_back("loss");
  for (const MetricValue& value : evaluation.values) names.push_back(value.name);
  names.emplace_back(kTrainLoss);
  return names;
}

std::map<std::string, double> values_of(const std::optional<Evaluation>& test,
                                        std::optional<double> train_loss) {
  std::map<std::string, double> values;
  if (train_loss) values[kTrainLoss] = *train_loss;
  if (!test) return values;
  for (const MetricValue& value : test->values) values[value.name] = value.value;
  if (test->has_loss) values["loss"] = test->loss;
  return values;
}

// Nothing if there was no evaluation. ConfigError if the evaluation has no such value.
std::optional<double> watched_value(const char* owner, const std::string& metric,
                                    const std::optional<Evaluation>& test,
                                    std::optional<double> train_loss) {
  if (metric == kTrainLoss) return train_loss;
  if (!test) return std::nullopt;
  const std::optional<double> value = test->value_of(metric);
  if (value) return value;
  const std::vector<std::string> names = value_names_of(*test);
  throw ConfigError(lockstep::str(owner, ": the evaluation has no value '", metric, "'; it has ",
                                  join(names), did_you_mean(metric, names)));
}

}  // namespace

std::vector<TrainingRun::WatchedName> TrainingRun::watched_names() const {
  std::vector<WatchedName> names;
  if (plateau_) names.push_back({kPlateauOwner, options_.schedule.plateau.monitor});
  if (early_stopping_) names.push_back({kStoppingOwner, options_.early_stopping->monitor});
  if (options_.checkpoints.save_top_k > 0 && !options_.checkpoints.directory.empty()) {
    names.push_back({kBestOwner, options_.checkpoints.monitor});
  }
  return names;
}

// Checks, before the first evaluation, whether there will be evaluations at all.
void TrainingRun::require_watched_values() const {
  for (const auto& [owner, metric] : watched_names()) {
    if (metric == kTrainLoss || test_loader_) continue;
    const char* const remedy = test_batches() == 0 ? "raise TrainerOptions::limit_val_batches"
                                                   : "give it a validation loader";
    throw ConfigError(lockstep::str(owner, ": watches '", metric,
                                    "' of the evaluations, but this run has none; ", remedy,
                                    ", or watch ", kTrainLoss));
  }
}

// The names of a task's values, and whether it has a loss, are known only after an evaluation. One
// batch is therefore evaluated first, so that a misspelt name does not cost the first epoch. Names
// are equal on all ranks, so all fail alike.
void TrainingRun::check_sanity() {
  if (!test_loader_ || finished()) return;
  const std::vector<WatchedName> watched = watched_names();
  const bool watches_values = std::ranges::any_of(
      watched, [](const WatchedName& each) { return each.metric != kTrainLoss; });
  const std::int64_t least = watches_values ? 1 : 0;
  const std::int64_t batches =
      std::min(std::max(options_.num_sanity_val_steps, least), test_batches());
  if (batches == 0) return;
  const Evaluation test = evaluate_batches(batches);
  for (const auto& [owner, metric] : watched) watched_value(owner, metric, test, std::nullopt);
}

std::optional<Evaluation> TrainingRun::evaluate() {
  if (!test_loader_) return std::nullopt;
  return evaluate_batches(test_batches());
}

Evaluation TrainingRun::evaluate_batches(std::int64_t most) {
  ++evaluations_.calls;
  const PhaseScope scope(evaluations_.seconds, "evaluation");
  const RecordingPause pause;  // its many batches would leave no room in the trace for the steps
  const torch::NoGradGuard no_grad;
  // The last step changed the buffers of each rank differently; all evaluate with rank 0's, and
  // with its averages of the running statistics, which are in the buffers meanwhile.
  strategy_.begin_evaluation();
  const AveragedWeights averaged(ema_ ? &*ema_ : nullptr);
  if (ema_) strategy_.begin_evaluation();
  const AutocastScope autocast(options_.precision, options_.device.type());
  test_loader_->set_epoch(0);
  Metrics metrics(task_.metrics());
  {
    const EvalScope eval(task_.module());
    strategy_.follow_modes();
    for (std::int64_t i = 0; i < most; ++i) {
      const LoadedBatch* const batch = test_loader_->next_loaded();
      if (batch == nullptr) break;
      const LoadedBatch on_device = moved(*batch);
      keep_samples(on_device);
      strategy_.evaluate(on_device, metrics);
    }
  }
  strategy_.follow_modes();
  metrics.all_reduce(strategy_.group(), options_.device);
  Evaluation test = metrics.mean();
  for (const MetricValue& value : test.values) {
    if (value.name == best_.monitor()) best_unit_ = value.unit;
  }
  return test;
}

bool TrainingRun::takes_pictures() const {
  const auto takes = [](const ListenerHandle& listener) { return listener->takes_pictures(); };
  return strategy_.group().rank() == 0 && strategy_.module_is_current() &&
         std::ranges::any_of(options_.listeners, takes);
}

// Keeps the first samples of the first evaluation. They are identical in every evaluation, also of
// a resumed run.
void TrainingRun::keep_samples(const LoadedBatch& batch) {
  if (!samples_ && takes_pictures()) samples_ = task_.loaded_samples(batch);
}

// Called after the evaluation that ends `epoch`.
void TrainingRun::show_picture(std::int64_t epoch) {
  if (!samples_) return;
  std::optional<RunPicture> picture;
  {
    const torch::NoGradGuard no_grad;
    const AveragedWeights averaged(ema_ ? &*ema_ : nullptr);
    const AutocastScope autocast(options_.precision, options_.device.type());
    const EvalScope eval(task_.module());
    picture = task_.loaded_picture(*samples_);
  }
  if (!picture) return;
  const PictureReport report = {
      .epoch = epoch, .steps_per_epoch = steps_per_epoch(), .picture = *std::move(picture)};
  tell([&](Listener& listener) { listener.on_picture(report); });
}

// Whether the step that just ended reaches the next evaluation; the epoch had `batches_before`
// batches before it. The end of the epoch has its own evaluation.
bool TrainingRun::evaluation_is_due(std::int64_t batches_before) const {
  if (!options_.val_check_interval || !test_loader_ || batches_left() == 0) return false;
  if (position_.epoch % options_.check_val_every_n_epoch != 0) return false;
  const std::int64_t interval = *options_.val_check_interval;
  return batches_done() / interval > batches_before / interval;
}

void TrainingRun::evaluate_in_epoch() {
  const EpochPause pause = pause_epoch();
  const std::optional<Evaluation> test = evaluate();
  watch(test, std::nullopt, position_.epoch);
  const EvaluationReport report = {.epoch = position_.epoch,
                                   .step = position_.step,
                                   .steps_per_epoch = steps_per_epoch(),
                                   .test = *test};
  tell([&](Listener& listener) { listener.on_evaluation(report); });
}

// Values are equal on all ranks, so they decide alike without communication.
void TrainingRun::watch(const std::optional<Evaluation>& test, std::optional<double> train_loss,
                        std::int64_t epoch) {
  if (plateau_) {
    const auto value =
        watched_value(kPlateauOwner, options_.schedule.plateau.monitor, test, train_loss);
    if (value) plateau_->step(*value);
  }
  if (early_stopping_) {
    const auto value =
        watched_value(kStoppingOwner, options_.early_stopping->monitor, test, train_loss);
    if (value) early_stopping_->step(*value);
  }
  watched_values_ = values_of(test, train_loss);
  watched_at_ = position_.total;
  const auto judged = watched_values_.find(best_.monitor());
  if (judged == watched_values_.end()) return;
  best_.step({.value = judged->second, .epoch = epoch, .step = position_.total});
}

std::optional<BestEvaluation> TrainingRun::best_evaluation() const {
  const std::optional<ReachedValue>& found = best_.found();
  if (!found) return std::nullopt;
  BestEvaluation best{
      .name = best_.monitor(), .value = found->value, .unit = best_unit_, .epoch = found->epoch};
  if (!store_) return best;
  const std::filesystem::path folder =
      find_evaluated(options_.checkpoints.directory, found->step, best.name, best.value);
  if (!folder.empty()) best.weights = (folder / kModelFile).string();
  return best;
}

}  // namespace lockstep::train
