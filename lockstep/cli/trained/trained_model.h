// The network of a checkpoint, for commands that use it: `export`, `predict` and `evaluate`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <lockstep/cli/train/model_notes.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/train/task/task.h>

namespace lockstep::cli {

/// The options as given by the user.
struct TrainedArguments {
  std::string checkpoint;
  std::string recipe;  ///< empty: the checkpoint's
  std::string model;   ///< empty: the checkpoint's
  std::optional<std::int64_t> image_size;
  bool no_average = false;
};

/// Adds CHECKPOINT, --recipe, --model, --image-size and --no-average to `command`; `to` must
/// outlive the parsing.
void add_trained_options(CLI::App& command, TrainedArguments& to);

struct TrainedModel {
  std::string weights;     ///< the file
  std::string checkpoint;  ///< the checkpoint's folder without links; without one, the file
  std::optional<std::int64_t> epoch{};  ///< the checkpoint's, from 1; absent without a folder
  std::optional<std::int64_t> step{};   ///< its optimizer steps in all epochs; absent likewise
  recipes::Recipe recipe;
  std::map<std::string, std::string> settings;  ///< the run's; empty if the weights have none
  ModelNotes notes;                             ///< the run's; empty if the weights have none
  std::vector<std::string> classes;  ///< names, in the order of the outputs; empty: unknown
  std::unique_ptr<OutputTask> task;  ///< with the weights, in eval mode, on the CPU
  /// Replaces `task` if the model computes its own loss (Recipe::needs_program).
  std::unique_ptr<detail::TaskBase> loss_task{};
  bool averaged = false;  ///< whether the parameters are averages (ema_decay)

  /// The text of a note or a setting; null if the weights have none of this name.
  const std::string* note(const std::string& name) const { return found_in(notes, name); }
  const std::string* setting(const std::string& name) const { return found_in(settings, name); }
  torch::nn::Module& module() const { return task ? task->module() : loss_task->module(); }
  /// The task if it classifies images, otherwise null.
  ClassificationTask* classifier() const { return dynamic_cast<ClassificationTask*>(task.get()); }
  /// The name of a class, or its number if the names are unknown.
  std::string class_name(std::int64_t label) const {
    return classes.empty() ? std::to_string(label) : classes.at(static_cast<std::size_t>(label));
  }

 private:
  static const std::string* found_in(const std::map<std::string, std::string>& texts,
                                     const std::string& name) {
    const auto found = texts.find(name);
    return found == texts.end() ? nullptr : &found->second;
  }
};

/// Loads the weights that the arguments name into the network of their recipe. CHECKPOINT is a
/// weights file, a run's folder, its folder of checkpoints, a checkpoint, or RUN/best or
/// RUN/latest. If `is_fused`, the network uses Lockstep's own kernels if the run did; otherwise it
/// computes with LibTorch's operations alone. A line on standard error says which information about
/// the model's use the file lacks, such as the names of its classes.
///
/// Throws ConfigError if there is no such checkpoint, if the recipe is unknown, and for choices
/// that it does not offer; unless `takes_losses`, also for a model that computes its own loss.
/// Throws CheckpointError for a damaged file, and for weights of another network.
TrainedModel load_trained(const TrainedArguments& arguments, bool is_fused,
                          bool takes_losses = false);

/// "run/checkpoints/step-00000060 (epoch 2, step 60)", or the name of a weights file.
std::string checkpoint_text(const TrainedModel& model);

/// The entries "checkpoint", "epoch" and "step" of a JSON file.
nlohmann::ordered_json checkpoint_json(const TrainedModel& model);

/// The notes for programs that use the model without a checkpoint, by name: preparation_notes(),
/// the names of the classes if they are known, and the recipe with its choices (of a program the
/// name of its file).
ModelNotes portable_notes(const TrainedModel& model);

}  // namespace lockstep::cli
