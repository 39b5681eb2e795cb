#include <lockstep/cli/trained/trained_model.h>

#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/recipe_names.h>
#include <lockstep/cli/train/train_checkpoints.h>
#include <lockstep/cli/train/weights_file.h>
#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/data/augment/augmentation_text.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/formats/torch_file.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhatToGive =
    "; give the folder of a `lockstep train --out` run, a checkpoint in it, or a weights file";

bool is_absent(const fs::path& path) {
  std::error_code ignored;
  return fs::status(path, ignored).type() == fs::file_type::not_found;
}

// `given`, or the link in the folder of checkpoints that RUN/best or RUN/latest stands for.
fs::path existing_path(const fs::path& given) {
  if (!is_absent(given)) return given;
  const std::string name = given.filename().string();
  const fs::path folder = given.parent_path() / kCheckpointsFolder;
  const bool is_link = name == train::kBestLink || name == train::kLatestLink;
  if (is_link && !is_absent(folder / name)) return folder / name;
  if (name == train::kBestLink && !is_absent(folder)) {
    throw ConfigError(lockstep::str(given.string(),
                                    " does not exist: the run kept no best checkpoint, because it "
                                    "ran without --save-top-k; give the folder of the run"));
  }
  throw ConfigError(given.string() + " does not exist" + kWhatToGive);
}

// The weights file of `given`, which may be the folder of a run or of a checkpoint.
fs::path weights_in(const fs::path& given) {
  const fs::path path = existing_path(given);
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const char* name : {train::kModelFile, kWeightsLink}) {
    if (fs::is_regular_file(path / name, ignored)) return path / name;
  }
  // The folder of checkpoints, or a run's on a file system without links.
  for (const fs::path& folder : {path, path / kCheckpointsFolder}) {
    if (train::checkpoint_folders(folder).empty()) continue;
    return train::find_checkpoint(folder).folder / train::kModelFile;
  }
  throw ConfigError(path.string() + " holds no checkpoint" + kWhatToGive);
}

// What the file says of the run that trained the network.
struct TrainedBy {
  std::string recipe;                           // empty: no recipe is named
  std::map<std::string, std::string> choices;   // Recipe::choices
  ModelNotes notes;                             // RunInfo::notes
  std::map<std::string, std::string> settings;  // all other entries
};

// A torch.save file cannot hold these names.
TrainedBy trained_by(const std::string& weights) {
  const MappedFile file(weights);
  TrainedBy found;
  if (is_torch_file(file.bytes())) return found;
  const Safetensors content = parse_safetensors(file.bytes(), weights);
  for (const auto& [name, value] : content.metadata) {
    if (name == "recipe") {
      found.recipe = value;
    } else if (name.starts_with(kRecipeOption)) {
      found.choices[name.substr(kRecipeOption.size())] = value;
    } else if (name.starts_with(kCheckpointNote)) {
      found.notes[name.substr(kCheckpointNote.size())] = value;
    } else {
      found.settings[name] = value;
    }
  }
  return found;
}

// Sets what is known of the checkpoint that the weights belong to. Its manifest counts the steps of
// all epochs and names the epoch in which a run resumes, the weights' metadata the steps in that.
void place_checkpoint(TrainedModel& model, const std::map<std::string, std::string>& settings) {
  model.checkpoint = model.weights;
  std::error_code error;
  const fs::path file = fs::canonical(model.weights, error);
  if (error || file.filename() != train::kModelFile) return;
  const fs::path folder = file.parent_path();
  if (!train::is_checkpoint_name(folder.filename().string())) return;
  model.checkpoint =
      (fs::path(model.weights).is_absolute() ? folder : fs::proximate(folder)).string();
  try {
    const formats::CheckpointManifest manifest = train::read_manifest(folder);
    const auto in_epoch = settings.find("step");
    const bool is_at_end = in_epoch != settings.end() && in_epoch->second == "0";
    model.epoch = manifest.epoch - (is_at_end && manifest.epoch > 1 ? 1 : 0);
    model.step = manifest.step;
  } catch (const Error&) {
    // The weights can be used without a manifest.
  }
}

// The checkpoint's recipe with its choices; options of the user take precedence.
recipes::Recipe recipe_of(const TrainedArguments& arguments, const std::string& weights,
                          const TrainedBy& trained, bool takes_losses) {
  const std::string name = arguments.recipe.empty() ? trained.recipe : arguments.recipe;
  if (name.empty()) throw ConfigError(weights + " names no recipe; give --recipe");
  const bool returns_loss = recipes::find_recipe(name).needs_program;
  if (returns_loss && !takes_losses) {
    throw ConfigError(lockstep::str(
        weights, " is of recipe ", name,
        ", whose model returns a loss and no predictions; `lockstep evaluate` computes the loss, "
        "and Python's model loads the weights"));
  }
  if (returns_loss && name != trained.recipe) {
    throw ConfigError(lockstep::str(weights, " does not say which program it belongs to, which ",
                                    "recipe ", name, " needs; give a checkpoint of that recipe"));
  }
  if (returns_loss && arguments.image_size) {
    throw ConfigError(lockstep::str("--image-size has no effect on recipe ", name,
                                    ", whose program has been trained with images of one size; "
                                    "remove it"));
  }
  recipes::RecipeChoices choices;
  if (name == trained.recipe) choices = recipes::choices_from(trained.choices);
  if (!arguments.model.empty()) choices.model = arguments.model;
  if (arguments.image_size) choices.image_size = arguments.image_size;
  return recipes::chosen_recipe(name, choices);
}

// Number of outputs of the last layer, which some recipes derive from their data.
std::int64_t classes_in(const StateDict& state) {
  for (const auto& [name, tensor] : state) {
    if (name == "fc.weight" && tensor.dim() == 2) return tensor.size(0);
  }
  return 0;
}

std::vector<std::string> noted_classes(const TrainedModel& model) {
  const std::string* const text = model.note(kClassesNote);
  if (text == nullptr || model.classifier() == nullptr) return {};
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> names;
  if (json.is_array()) {
    for (const auto& name : json) {
      if (name.is_string()) names.push_back(name.get<std::string>());
    }
  }
  if (!names.empty() && names.size() == json.size()) return names;
  throw CheckpointError(lockstep::str(model.weights, ": its classes must be a list of names, got ",
                                      text->substr(0, 100)));
}

// Says what must be assumed about the use of the model.
void tell_of_missing_notes(const TrainedModel& model) {
  std::vector<std::string> missing;
  std::vector<std::string> assumed;
  if (model.classifier() != nullptr && model.classes.empty()) {
    missing.emplace_back("the names of its classes");
    assumed.emplace_back("classes are named by their numbers");
  }
  const bool has_images = !model.recipe.make_tensor_task;
  const std::string* const noted = model.note(kPreparationNote);
  if (noted == nullptr && has_images) {
    missing.emplace_back("how its images are prepared");
    assumed.push_back("images are prepared as in this version of recipe " + model.recipe.name);
  }
  if (!missing.empty()) {
    std::cerr << "note: " << model.weights
              << ", which an earlier version or another program wrote, does not say "
              << join(missing, " and ") << "; " << join(assumed, ", and ") << std::endl;
  }
  const std::string now = data::augmentation_text(model.recipe.test_augmentation);
  if (noted == nullptr || *noted == now) return;
  std::cerr << "note: " << model.weights << " was trained on images prepared with " << *noted
            << ", but this version prepares them with " << now << std::endl;
}

std::unique_ptr<OutputTask> output_task(std::unique_ptr<Task> task, const std::string& recipe) {
  auto* const model = dynamic_cast<OutputTask*>(task.get());
  if (model == nullptr) {
    throw ConfigError(lockstep::str("recipe ", recipe,
                                    " cannot be used here: its network has more than one output"));
  }
  static_cast<void>(task.release());
  return std::unique_ptr<OutputTask>(model);
}

bool had_fused_kernels(const TrainedModel& model) {
  const std::string* const fused = model.setting("fused_kernels");
  return model.recipe.has_fused_kernels && (fused == nullptr || *fused == "yes");
}

}  // namespace

void add_trained_options(CLI::App& command, TrainedArguments& to) {
  command
      .add_option("CHECKPOINT", to.checkpoint,
                  "Checkpoint made by `lockstep train --out DIR`: DIR, DIR/best, DIR/latest, a "
                  "checkpoint in DIR, or the weights file of a checkpoint; with --recipe, any "
                  "weights file (.safetensors, .pt, .pth)")
      ->required();
  command.add_option("--recipe", to.recipe,
                     "Recipe of the network: " + join(recipes_with(has_own_model)) +
                         " (default: the checkpoint's)");
  command.add_option(
      "--model", to.model,
      "Network of the recipe (" + only_recipes(has_models) + ", default: the checkpoint's)");
  command
      .add_option("--image-size", to.image_size,
                  "Side of the images, in pixels (" + only_recipes(evaluates_image_size) +
                      ", default: the checkpoint's)")
      ->transform(whole_number<std::int64_t>());
  command.add_flag("--no-average", to.no_average,
                   "Use the weights of the last step instead of the average that the run "
                   "evaluated (runs with --ema-decay only)");
  for (const char* name : {"CHECKPOINT", "--recipe", "--model"}) {
    command.get_option(name)->check(not_empty());
  }
}

TrainedModel load_trained(const TrainedArguments& arguments, bool is_fused, bool takes_losses) {
  TrainedModel model;
  model.weights = weights_in(arguments.checkpoint).string();
  TrainedBy trained = trained_by(model.weights);
  place_checkpoint(model, trained.settings);
  model.recipe = recipe_of(arguments, model.weights, trained, takes_losses);
  if (model.recipe.name == trained.recipe) {
    model.settings = std::move(trained.settings);
    model.notes = std::move(trained.notes);
  }
  WeightsOfFile weights = load_weights_file(
      model.weights, arguments.no_average ? WeightsKind::kTrained : WeightsKind::kEvaluated);
  model.averaged = weights.averaged;
  if (model.recipe.make_tensor_task) {
    model.loss_task = model.recipe.make_tensor_task({});
  } else if (model.recipe.needs_program) {
    model.loss_task = model.recipe.make_task({});
  } else {
    model.task =
        output_task(model.recipe.make_task({.fused_kernels = is_fused && had_fused_kernels(model),
                                            .num_classes = classes_in(weights.state)}),
                    model.recipe.name);
  }
  torch::nn::Module& module = model.module();
  load_state_dict(module, weights.state);
  module.eval();
  model.classes = noted_classes(model);
  tell_of_missing_notes(model);
  return model;
}

std::string checkpoint_text(const TrainedModel& model) {
  if (!model.step) return model.checkpoint;
  return lockstep::str(model.checkpoint, " (epoch ", *model.epoch, ", step ", *model.step, ')');
}

nlohmann::ordered_json checkpoint_json(const TrainedModel& model) {
  nlohmann::ordered_json json{{"checkpoint", model.checkpoint}, {"epoch", nullptr}};
  if (model.epoch) json["epoch"] = *model.epoch;
  json["step"] = nullptr;
  if (model.step) json["step"] = *model.step;
  return json;
}

ModelNotes portable_notes(const TrainedModel& model) {
  ModelNotes notes = preparation_notes(model.recipe);
  if (!model.classes.empty()) notes[kClassesNote] = classes_note(model.classes);
  notes["recipe"] = model.recipe.name;
  for (const auto& [name, value] : model.recipe.choices) {
    notes[name] = name == recipes::kProgramChoice ? fs::path(value).filename().string() : value;
  }
  return notes;
}

}  // namespace lockstep::cli
