#include <lockstep/train/training_run.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <lockstep/core/log.h>
#include <lockstep/train/checkpoints/checkpoint_content.h>
#include <lockstep/train/checkpoints/checkpoint_space.h>
#include <lockstep/train/checkpoints/run_checkpoint.h>
#include <lockstep/train/measuring/phase_scope.h>

namespace lockstep::train {
namespace {

// Names of a resumed run's states in a checkpoint's settings.
constexpr const char* kScheduleState = "schedule_state";
constexpr const char* kStoppingState = "early_stopping_state";
constexpr const char* kAverageUpdates = "ema_updates";
constexpr const char* kBestWatched = "best_watched";
constexpr const char* kBestState = "best_state";

constexpr const char* kSplit = "split";              // RunInfo::split
constexpr const char* kWeights = "initial_weights";  // RunInfo::weights

constexpr const char* kLearningRate = "lr";  // among the optimizer's settings

// The text of `number`, or "none".
template <class Number>
std::string number_or_none(const std::optional<Number>& number) {
  return number ? exact_text(static_cast<double>(*number)) : "none";
}

std::int64_t parse_updates(const std::string& text) {
  std::int64_t updates = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, updates);
  if (error == std::errc() && stop == end && updates >= 0) return updates;
  throw CheckpointError(lockstep::str("the checkpoint's ", kAverageUpdates, " is '", text,
                                      "', expected a whole number"));
}

const char* yes_or_no(bool value) { return value ? "yes" : "no"; }

// A text such as "lr 0.1 (now 0.2)" for each value of `before` that differs in `now`.
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

// RunInfo::recipe_options of the run that wrote the checkpoint.
std::map<std::string, std::string> recipe_options_in(const CheckpointInfo& checkpoint) {
  std::map<std::string, std::string> options;
  for (const auto& [name, value] : checkpoint.settings) {
    if (name.starts_with(kRecipeOption)) options[name.substr(kRecipeOption.size())] = value;
  }
  return options;
}

// How the recipe options of a run differ from those of its checkpoint.
struct RecipeDifference {
  std::vector<std::string> texts{};  // "program old.pt2 (now new.pt2)"
  std::vector<std::string> names{};  // "RunInfo::recipe_options[program]"
};

RecipeDifference recipe_difference(const std::map<std::string, std::string>& before,
                                   const std::map<std::string, std::string>& now) {
  std::set<std::string> names;
  for (const auto* options : {&before, &now}) {
    for (const auto& [name, value] : *options) names.insert(name);
  }
  const auto value_in = [](const std::map<std::string, std::string>& options,
                           const std::string& name) {
    const auto found = options.find(name);
    return found == options.end() ? "none" : found->second;
  };
  RecipeDifference difference;
  for (const std::string& name : names) {
    const std::string old = value_in(before, name), value = value_in(now, name);
    if (old == value) continue;
    difference.texts.push_back(lockstep::str(name, " ", old, " (now ", value, ")"));
    difference.names.push_back(lockstep::str("RunInfo::recipe_options[", name, ']'));
  }
  return difference;
}

// CheckpointError if the run was trained with a split of the samples other than `now`. A checkpoint
// without a split is not checked.
void require_same_split(const CheckpointInfo& checkpoint, const std::string& now) {
  const auto before = checkpoint.settings.find(kSplit);
  if (before == checkpoint.settings.end() || before->second == now) return;
  throw CheckpointError(
      "the checkpoint was trained with another split of the samples, so that some of those that it "
      "was trained on would now be validated on; split the samples as before (RunInfo::split), "
      "or begin a new run with the checkpoint's weights. Earlier versions of Lockstep split "
      "folders of images of several classes in another way");
}

// Indices that all ranks had taken when the checkpoint was written. Nothing if the checkpoint lacks
// them, or if the samples now have a different order.
std::optional<std::int64_t> taken_in(const CheckpointInfo& checkpoint, const Sampler& sampler) {
  if (!checkpoint.settings.contains("sampler")) return std::nullopt;
  const SamplerPosition position = sampler_position(checkpoint.settings);
  if (position.sampler != sampler.describe()) return std::nullopt;
  return position.taken;
}

}  // namespace

// Only rank 0 reads and writes checkpoints. If it fails, Trainer::fit() informs the other ranks,
// which wait for it in a collective.
void TrainingRun::open_checkpoints() {
  if (options_.checkpoints.directory.empty()) return;
  ProcessGroup& group = strategy_.group();
  resumes_ = static_cast<bool>(options_.resume);
  if (group.rank() == 0) {
    resumes_ = decide_resume(options_.checkpoints, options_.resume, options_.overwrite);
    store_.emplace(options_.checkpoints);
  }
  if (options_.resume.mode() != Resume::kAuto || group.size() == 1) return;
  resumes_ = group.broadcast_object(resumes_ ? "resumes" : "begins") == "resumes";
}

// Checks the disk and the types of the state before training, so that a full disk or a tensor that
// no file can hold does not end the run after its first epoch.
void TrainingRun::prepare_checkpoints() {
  if (!store_ || finished()) return;
  const CheckpointOptions& options = options_.checkpoints;
  store_->prepare();
  require_storable(state_dict(task_.module()));
  const std::int64_t steps = steps_per_epoch();
  const std::int64_t left = total_steps() - position_.total;
  std::int64_t saves = (left + position_.step + steps - 1) / steps;
  if (options.every_n_train_steps > 0) saves += left / options.every_n_train_steps;
  if (options.save_top_k > 0 && options_.val_check_interval) {
    saves += left * options_.accumulate_grad_batches / *options_.val_check_interval;
  }
  std::uint64_t bytes =
      checkpoint_bytes(task_.module(), *detail::make_update_rule(plan_.typical_options()));
  if (ema_) {
    for (const auto& [name, tensor] : ema_->state()) bytes += tensor.nbytes();
  }
  const auto there = static_cast<std::int64_t>(checkpoint_folders(options.directory).size());
  const std::int64_t most = CheckpointStore::most_at_once(options);
  require_checkpoint_space(options.directory, bytes,
                           std::min(saves, std::max<std::int64_t>(most - there, 1)));
  if (!options.background) return;
  // Allocated now, so that the first checkpoint does not wait for the memory.
  const bool pinned = !options_.device.is_cpu();
  writing_.start([this, bytes, pinned] {
    try {
      snapshot_.reserve(static_cast<std::int64_t>(bytes), pinned);
    } catch (const std::exception& error) {
      throw CheckpointError(lockstep::str("cannot keep ", bytes, " bytes",
                                          pinned ? " of pinned memory" : "",
                                          " for a copy of the checkpoint: ", first_line(error),
                                          "; remove CheckpointOptions::background"));
    }
  });
}

std::filesystem::path TrainingRun::resumed_path() {
  if (const auto path = store_->resume()) return *path;
  throw CheckpointError(lockstep::str("the checkpoints in ",
                                      options_.checkpoints.directory.string(),
                                      " were removed while the run was starting"));
}

// Rank 0 reads the checkpoint and returns the optimizer's state. The strategy copies rank 0's
// parameters and buffers to the other ranks, and the optimizer its state. Other hosts need no
// access to the file.
NamedTensors TrainingRun::resume() {
  CheckpointInfo checkpoint;
  NamedTensors of_optimizer;
  if (strategy_.group().rank() == 0) {
    of_optimizer = plan_.fresh_state(task_.module());
    checkpoint = read_checkpoint(of_optimizer);
  }
  std::optional<std::int64_t> taken = taken_in(checkpoint, train_loader_.sampler());
  if (strategy_.group().size() > 1) broadcast_checkpoint(checkpoint, taken);
  restore_states(checkpoint.settings);
  continue_from(checkpoint, taken);
  return of_optimizer;
}

// Copies the checkpoint's tensors into the module and into those of `of_optimizer`, and adds the
// state of the program's own optimizers to the latter.
CheckpointInfo TrainingRun::read_checkpoint(NamedTensors& of_optimizer) {
  const std::filesystem::path path = resumed_path();
  RunState state{.training = training_state(of_optimizer),
                 .takes = [this](const std::string& name) { return plan_.is_own_state(name); }};
  CheckpointInfo checkpoint;
  RecipeDifference difference;
  try {
    checkpoint =
        load_run(path, task_.module(), state, info_.recipe, [&](const CheckpointInfo& saved) {
          plan_.require_same_optimizers(saved.settings, path.string());
          const std::map<std::string, std::string> before = recipe_options_in(saved);
          if (!before.empty()) difference = recipe_difference(before, info_.recipe_options);
        });
  } catch (const CheckpointError& error) {
    // With another network, the name of the first tensor that does not fit says little.
    if (difference.names.empty()) throw;
    throw CheckpointError(lockstep::str(path.string(), " was trained with ", join(difference.texts),
                                        "; give the same ", join(difference.names), " as before (",
                                        first_line(error), ")"));
  }
  std::ranges::move(state.taken, std::back_inserter(of_optimizer));
  info_.resumed_from = path.string();
  info_.weights = checkpoint.settings[kWeights];
  require_same_split(checkpoint, info_.split);
  // Older checkpoints lack these settings, which had only one possible value.
  checkpoint.settings.merge(
      std::map<std::string, std::string>{{"loader", "native"},
                                         {"mix", "none"},
                                         {"fused_kernels", yes_or_no(info_.fused_kernels)},
                                         {kSplit, info_.split},
                                         {"accumulate_grad_batches", "1"},
                                         {"batch_parts", "whole"},
                                         {"gradient_clip_value", "none"},
                                         {"ema_decay", "none"},
                                         {"limit_train_batches", "none"},
                                         {"overfit_batches", "0"}});
  warn_of_differences(checkpoint.settings);
  return checkpoint;
}

// Sends rank 0's position and training state to the other ranks.
void TrainingRun::broadcast_checkpoint(CheckpointInfo& checkpoint,
                                       std::optional<std::int64_t>& taken) {
  ProcessGroup& group = strategy_.group();
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

// Moves the run and its loader to the checkpoint's position. `taken` is the number of samples that
// the epoch has used; empty if the loader cannot continue after them.
void TrainingRun::continue_from(CheckpointInfo checkpoint, std::optional<std::int64_t> taken) {
  const std::int64_t steps = steps_per_epoch();
  if (taken) {
    position_.epoch = checkpoint.epoch;
    train_loader_.restore({train_loader_.sampler().describe(), loader_epoch(), *taken});
    checkpoint.step = steps - steps_left();
    restored_ = steps_left() > 0;
    if (!restored_) {  // the remaining samples make no batch of this size
      ++checkpoint.epoch;
      checkpoint.step = 0;
    }
  }
  position_ = {.epoch = checkpoint.epoch,
               .step = checkpoint.step,
               .total = (checkpoint.epoch - 1) * steps + checkpoint.step};
  if (position_.step >= steps) {
    throw CheckpointError(lockstep::str(options_.checkpoints.directory.string(), ": step ",
                                        position_.step, " is beyond this run's epoch of ", steps,
                                        " steps"));
  }
}

void TrainingRun::warn_of_differences(const std::map<std::string, std::string>& before) const {
  std::map<std::string, std::string> now = settings();
  const auto rate = before.find(kLearningRate);
  if (plateau_ && before.contains(kScheduleState) && rate != before.end()) {
    // The plateau's state has the learning rate it has reached.
    std::string& given = now.at(kLearningRate);
    if (given != rate->second) {
      log_warning("the learning rate goes on as schedule plateau has left it, from ", rate->second,
                  "; the new one, ", given, ", changes nothing");
    }
    given = rate->second;
  }
  const auto differences = differing(before, now);
  if (differences.empty()) return;
  log_warning("the run continues, but does not reproduce the original, which was trained with ",
              join(differences));
}

// Broadcasts rank 0's states to all ranks: a line for each state, empty if the file has none.
void TrainingRun::restore_states(const std::map<std::string, std::string>& saved) {
  const auto line_of = [&saved](const char* name) {
    const auto found = saved.find(name);
    return (found == saved.end() ? std::string() : found->second) + '\n';
  };
  std::string lines = line_of(kScheduleState) + line_of(kStoppingState) + line_of(kAverageUpdates) +
                      line_of(kBestWatched) + line_of(kBestState);
  ProcessGroup& group = strategy_.group();
  if (group.size() > 1) lines = group.broadcast_object(lines);
  std::istringstream in(lines);
  std::string of_schedule, of_stopping, of_average, best_watched, of_best;
  std::getline(in, of_schedule);
  std::getline(in, of_stopping);
  std::getline(in, of_average);
  std::getline(in, best_watched);
  std::getline(in, of_best);
  if (plateau_ && !of_schedule.empty()) plateau_->restore(of_schedule);
  if (early_stopping_ && !of_stopping.empty()) early_stopping_->restore(of_stopping);
  if (ema_ && !of_average.empty()) ema_->set_updates(parse_updates(of_average));
  // The best of another value, or by the other goal, says nothing about this run's.
  if (best_watched == utf8_text(best_.watched())) best_.restore(of_best);
}

std::map<std::string, std::string> TrainingRun::states() const {
  std::map<std::string, std::string> states;
  if (plateau_) states[kScheduleState] = plateau_->state();
  if (early_stopping_) states[kStoppingState] = early_stopping_->state();
  if (ema_) states[kAverageUpdates] = std::to_string(ema_->updates());
  if (best_.found()) {
    states[kBestWatched] = utf8_text(best_.watched());
    states[kBestState] = best_.state();
  }
  return states;
}

StateDict TrainingRun::training_state(NamedTensors of_optimizer) const {
  StateDict state = std::move(of_optimizer);
  if (ema_) {
    for (auto& entry : ema_->state()) state.push_back(std::move(entry));
  }
  if (!scaler_) return state;
  for (const auto& [name, tensor] : scaler_->state()) {
    state.emplace_back(std::string(kGradScalerState) + name, tensor);
  }
  return state;
}

std::map<std::string, std::string> TrainingRun::settings() const {
  std::map<std::string, std::string> settings = plan_.settings();
  settings.merge(std::map<std::string, std::string>{
      {"seed", std::to_string(options_.seed)},
      {"global_batch", std::to_string(info_.global_batch)},
      {"world_size", std::to_string(strategy_.group().size())},
      {"gradient_clip_norm", number_or_none(options_.gradient_clip_norm)},
      {"gradient_clip_value", number_or_none(options_.gradient_clip_value)},
      {"ema_decay", number_or_none(options_.ema_decay)},
      {"limit_train_batches", number_or_none(options_.limit_train_batches)},
      {"overfit_batches", std::to_string(options_.overfit_batches)},
      {"schedule", to_string(options_.schedule, options_.max_epochs)},
      {"precision", to_string(options_.precision)},
      {"dataset", info_.dataset},
      {"loader", to_string(train_loader_.options().engine)},
      {"mix", to_string(train_loader_.options().mix)},
      {"fused_kernels", yes_or_no(info_.fused_kernels)},
      {"accumulate_grad_batches", std::to_string(options_.accumulate_grad_batches)},
      {"batch_parts", strategy_.batch_parts()}});
  if (!info_.split.empty()) settings[kSplit] = info_.split;
  for (const auto& [name, value] : info_.recipe_options) {
    settings[std::string(kRecipeOption) + name] = value;
  }
  // The description of a data set may have a path of any bytes; the file takes UTF-8 only.
  for (auto& [name, value] : settings) value = utf8_text(value);
  return settings;
}

// Whether a checkpoint is due within the epoch. Every epoch has one at its end anyway.
bool TrainingRun::checkpoint_is_due(bool after_evaluation) const {
  if (batches_left() == 0 || finished()) return false;
  const CheckpointOptions& options = options_.checkpoints;
  if (after_evaluation && options.save_top_k > 0) return true;
  return options.every_n_train_steps > 0 && position_.total % options.every_n_train_steps == 0;
}

CheckpointInfo TrainingRun::checkpoint_info() const {
  auto saved = settings();
  // The position at the end of an epoch is the beginning of the next one.
  saved.merge(to_settings(position_.step == 0
                              ? position_of(train_loader_.sampler(), position_.epoch - 1, 0)
                              : train_loader_.position()));
  saved.merge(states());
  if (!info_.weights.empty()) saved[kWeights] = utf8_text(info_.weights);
  for (const auto& [name, text] : info_.notes) {
    saved[std::string(kCheckpointNote) + name] = utf8_text(text);
  }
  return {.recipe = info_.recipe,
          .epoch = position_.epoch,
          .step = position_.step,
          .settings = std::move(saved)};
}

void TrainingRun::save() {
  if (options_.checkpoints.directory.empty()) return;
  ++checkpoints_.calls;
  const PhaseScope scope(checkpoints_.seconds, "checkpoint");
  // Operations in a stream fail after the host has gone on. A model from which a peer's gradients
  // are missing must not be saved.
  if (strategy_.group().runs_on_stream()) strategy_.group().barrier();
  strategy_.gather_module();
  const NamedTensors of_optimizer = optimizer_->state();
  if (store_) write_checkpoint(of_optimizer);
}

void TrainingRun::write_checkpoint(const NamedTensors& of_optimizer) {
  StateDict model = state_dict(task_.module());
  StateDict training = training_state(of_optimizer);
  CheckpointMoment moment{.epoch = position_.epoch, .step = position_.total};
  if (watched_at_ == position_.total) moment.metrics = watched_values_;
  // What is not trained may be infinite on purpose, such as a mask.
  std::set<std::string> untrained;
  for (const auto& buffer : task_.module().named_buffers()) untrained.insert(buffer.key());
  for (const auto& parameter : task_.module().named_parameters()) {
    if (!parameter.value().requires_grad()) untrained.insert(parameter.key());
  }
  if (!options_.checkpoints.background) {
    const CheckpointContent content(model, training, checkpoint_info());
    moment.finite = content.all_finite(untrained);
    return store_->save(content.files(), moment);
  }
  writing_.wait();  // reads the snapshot until then
  const auto parameters = static_cast<std::ptrdiff_t>(model.size());
  std::move(training.begin(), training.end(), std::back_inserter(model));
  StateDict copies = snapshot_.take(model);
  writing_.start([this, parameters, copies = std::move(copies), info = checkpoint_info(),
                  untrained = std::move(untrained), moment = std::move(moment)]() mutable {
    CheckpointStore::give_way();
    const auto middle = copies.begin() + parameters;
    const StateDict model_copies(copies.begin(), middle), training_copies(middle, copies.end());
    const CheckpointContent content(model_copies, training_copies, info);
    moment.finite = content.all_finite(untrained);
    store_->save(content.files(), moment);
  });
}

}  // namespace lockstep::train
