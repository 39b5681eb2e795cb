#include <lockstep/cli/trained/evaluated_data.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <iostream>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/option_checks.h>
#include <lockstep/cli/recipe_names.h>
#include <lockstep/core/encoding/utf8.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/datasets/open_images.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/recipes/tensor_split.h>
#include <lockstep/report/download_bar.h>
#include <lockstep/report/terminal.h>

namespace lockstep::cli {
namespace {

constexpr const char* kValidationPart = "validation";
constexpr const char* kTrainPart = "train";
constexpr const char* kAllParts = "all";
const std::vector<std::string>& part_names() {
  static const std::vector<std::string> names = {kValidationPart, kTrainPart, kAllParts};
  return names;
}

template <class Number>
Number number_of(const TrainedModel& model, const char* name, const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  throw CheckpointError(
      lockstep::str(model.weights, ": its ", name, " must be a number, got '", text, "'"));
}

// Whether the images are those of a data set, although the recipe takes any folder.
bool has_known_images(const recipes::Recipe& recipe) {
  return recipe.choices.contains(recipes::kImagesChoice);
}

// Whether all samples of the folder or file can be taken, whatever their part.
bool has_whole(const recipes::Recipe& recipe, const std::optional<std::string>& directory) {
  if (has_known_images(recipe)) return false;
  return recipe.splits_folder || (directory && recipes::holds_packs(*directory));
}

bool has_own_parts(const recipes::Recipe& recipe, const std::optional<std::string>& directory) {
  if (!directory) return false;
  return recipe.make_tensor_task ? recipes::has_own_tensor_parts(*directory)
                                 : recipes::has_own_parts(*directory);
}

// Whether photographs are turned upright: by default as in the run, unless they are decoded.
bool are_turned(const EvaluatedDataArguments& arguments, const TrainedModel& model,
                const std::optional<std::string>& directory) {
  if (arguments.exif_transpose) return true;
  if (model.recipe.make_tensor_task) return false;
  const bool are_pixels = directory && recipes::holds_packed_pixels(*directory);
  return !are_pixels && model.note(kExifTransposeNote) != nullptr;
}

ImageReader::Decoding decoding_of(const std::string& command, const TrainedModel& model) {
  const std::string* const word = model.note(kDecodingNote);
  return word == nullptr ? ImageReader::Decoding::kExact : parse_decoding_option(command, *word);
}

// The folder of the run's samples, or that of --data.
std::optional<std::string> directory_of(const std::string& command,
                                        const EvaluatedDataArguments& arguments,
                                        const TrainedModel& model) {
  if (arguments.data) return arguments.data;
  if (const std::string* const noted = model.note(kDataNote)) return *noted;
  if (!model.recipe.splits_folder || has_known_images(model.recipe)) return std::nullopt;
  if (model.recipe.make_tensor_task) {
    throw ConfigError(lockstep::str(command, ": ", model.weights,
                                    " does not say which tensors the run was trained on; give "
                                    "--data PATH, a .safetensors file or a folder of .npy files"));
  }
  throw ConfigError(lockstep::str(command, ": ", model.weights,
                                  " does not say which images the run was trained on; give --data "
                                  "PATH, a folder of images with a folder for each class, or a "
                                  "pack"));
}

std::string split_of(const std::string& command, const EvaluatedDataArguments& arguments,
                     const TrainedModel& model, const std::optional<std::string>& directory) {
  const bool whole = has_whole(model.recipe, directory);
  const bool is_plain = arguments.data && whole && !has_own_parts(model.recipe, directory);
  const std::string split = arguments.split.value_or(is_plain ? kAllParts : kValidationPart);
  if (split == kAllParts && !whole) {
    throw ConfigError(lockstep::str(
        command, ": --split all is available only for ", join(recipes_with(splits_folder)),
        " and packs; use --split validation or train with ",
        has_known_images(model.recipe) ? model.recipe.choices.at(recipes::kImagesChoice)
                                       : model.recipe.name));
  }
  return split;
}

// Throws DataError if the run was trained on another split of the samples.
void require_split_of_run(const std::string& command, const TrainedModel& model,
                          const recipes::RecipeData& data, const std::string& directory) {
  const std::string* const before = model.setting("split");
  if (!data.is_split_at_random || before == nullptr || *before == data.fingerprint) return;
  if (data.tensors) {
    throw DataError(lockstep::str(
        command, ": the tensors in ", directory,
        " do not have the names, types and shapes of the run's, so the samples that the network "
        "was trained on cannot be identified; use --split all, or --data with samples that are new "
        "to the network"));
  }
  throw DataError(lockstep::str(
      command,
      recipes::holds_packs(directory) ? ": the images in " : ": the names of the images in ",
      directory,
      " are not those of the run, so the images that the network was trained on cannot be "
      "identified; use --split all, or --data with images that are new to the network"));
}

// Unreadable images are kept, because the command names them, and because a run that skips them has
// split the images with them.
EvaluatedData load_part(const std::string& command, const EvaluatedDataArguments& arguments,
                        const TrainedModel& model, const std::optional<std::string>& directory,
                        const std::string& split) {
  report::DownloadBar bar(std::cerr, detect_terminal(STDERR_FILENO));
  recipes::RecipeDataOptions options{.directory = directory,
                                     .max_image_pixels = arguments.max_image_pixels,
                                     .decoding = decoding_of(command, model),
                                     .exif_transpose = are_turned(arguments, model, directory),
                                     .keep_unreadable = true,
                                     .whole = split == kAllParts,
                                     .cache_bytes = 0,  // each image is read once
                                     .progress = std::ref(bar),
                                     .message = [](const std::string& text) {
                                       std::cerr << "note: " << with_flags(text) << std::endl;
                                     }};
  if (const std::string* const seed = model.setting("seed")) {
    options.seed = number_of<std::uint64_t>(model, "seed", *seed);
  }
  const std::string* const fraction = model.note(kValidationFractionNote);
  if (fraction != nullptr && !options.whole && !has_own_parts(model.recipe, directory)) {
    options.validation_fraction = number_of<double>(model, kValidationFractionNote, *fraction);
  }
  const recipes::RecipeData data = model.recipe.load_data(options);
  require_split_of_run(command, model, data, directory.value_or(""));
  const std::string* const trained_on = model.setting("dataset");
  if (!arguments.data && trained_on != nullptr && *trained_on != utf8_text(data.description)) {
    std::cerr << "note: the network was trained on " << *trained_on << " and is evaluated on "
              << data.description << std::endl;
  }
  if (data.tensors) {
    return {.images = {},
            .description = data.description,
            .split = split,
            .is_shuffled = data.is_split_at_random,
            .tensors = split == kTrainPart ? data.tensors->train : data.tensors->validation};
  }
  return {.images = split == kTrainPart ? data.train : data.load_test(),
          .description = data.description,
          .split = split,
          .is_shuffled = data.is_split_at_random};
}

// Throws DataError unless the classes of the images are those of the model, in their order.
void require_classes_of(const std::string& command, const TrainedModel& model,
                        const ImageDataset& images) {
  if (model.classes.empty()) return;
  const std::vector<std::string> found = names_of_classes(images);
  if (found == model.classes) return;
  const auto lacks = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) == names.end();
  };
  std::string difference = "they are in another order";
  for (const std::string& name : model.classes) {
    if (lacks(found, name)) difference = "the class '" + name + "' is missing";
  }
  for (const std::string& name : found) {
    if (lacks(model.classes, name)) difference = "the network has no class '" + name + "'";
  }
  throw DataError(lockstep::str(command, ": the classes of ", images.name(), " are not those of ",
                                model.weights, ": ", difference, "; the network has ",
                                join(model.classes)));
}

}  // namespace

void add_evaluated_data_options(CLI::App& command, EvaluatedDataArguments& to) {
  command
      .add_option("--data", to.data,
                  "Folder or pack of the images to evaluate on, or folder of a known data set's "
                  "files; for program also a .safetensors file or a folder of .npy files "
                  "(default: the run's)")
      ->type_name("PATH")
      ->check(not_empty());
  command
      .add_option("--split", to.split,
                  "Part to evaluate on: " + join(part_names()) +
                      " (default: validation, and all for a --data PATH without parts train and "
                      "val; all is for " +
                      join(recipes_with(splits_folder)) + " and packs only)")
      ->check(not_empty());
  add_max_image_pixels_option(command, to.max_image_pixels);
  command.add_flag("--exif-transpose", to.exif_transpose,
                   "Turn photographs upright by their EXIF orientation, which is ignored otherwise "
                   "(folders of images and packs of their files only, default: as in the run)");
}

void check_evaluated_data(const std::string& command, const EvaluatedDataArguments& arguments) {
  check_max_image_pixels(command, arguments.max_image_pixels);
  if (arguments.data) data::require_data(*arguments.data, command + ": --data ");
  if (arguments.split) OptionCheck(command).one_of("--split", *arguments.split, part_names());
}

EvaluatedData load_evaluated_data(const std::string& command,
                                  const EvaluatedDataArguments& arguments,
                                  const TrainedModel& model) {
  const std::optional<std::string> directory = directory_of(command, arguments, model);
  if (arguments.exif_transpose && !(directory && model.recipe.reads_image_folder)) {
    throw ConfigError(lockstep::str(command, ": --exif-transpose has no effect on ",
                                    model.recipe.name, " without a folder of images; remove it"));
  }
  const std::string split = split_of(command, arguments, model, directory);
  EvaluatedData data = load_part(command, arguments, model, directory, split);
  if (model.classifier() != nullptr) require_classes_of(command, model, data.images);
  return data;
}

}  // namespace lockstep::cli
