#include <lockstep/cli/trained/evaluated_data.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
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
#include <lockstep/data/datasets/image_folder.h>
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

bool has_train_folder(const std::optional<std::string>& directory) {
  std::error_code ignored;
  return directory &&
         std::filesystem::is_directory(std::filesystem::path(*directory) / "train", ignored);
}

ImageReader::Decoding decoding_of(const std::string& command, const TrainedModel& model) {
  const std::string* const word = model.note(kDecodingNote);
  return word == nullptr ? ImageReader::Decoding::kExact : parse_decoding_option(command, *word);
}

// The folder of the run's images, or that of --data.
std::optional<std::string> directory_of(const std::string& command,
                                        const EvaluatedDataArguments& arguments,
                                        const TrainedModel& model) {
  if (arguments.data) return arguments.data;
  if (const std::string* const noted = model.note(kDataNote)) return *noted;
  if (!model.recipe.splits_folder) return std::nullopt;
  throw ConfigError(lockstep::str(command, ": ", model.weights,
                                  " does not say which images the run was trained on; give --data "
                                  "FOLDER, a folder of images with a folder for each class"));
}

std::string split_of(const std::string& command, const EvaluatedDataArguments& arguments,
                     const TrainedModel& model, const std::optional<std::string>& directory) {
  const bool is_plain =
      arguments.data && model.recipe.splits_folder && !has_train_folder(directory);
  const std::string split = arguments.split.value_or(is_plain ? kAllParts : kValidationPart);
  if (split == kAllParts && !model.recipe.splits_folder) {
    throw ConfigError(lockstep::str(command, ": --split all is available only for ",
                                    join(recipes_with(splits_folder), " and "),
                                    "; use --split validation or train with ", model.recipe.name));
  }
  return split;
}

// Throws DataError if the run was trained on another split of the images.
void require_split_of_run(const std::string& command, const TrainedModel& model,
                          const recipes::RecipeData& data, const std::string& directory) {
  const std::string* const before = model.setting("split");
  if (!data.is_split_at_random || before == nullptr || *before == data.fingerprint) return;
  throw DataError(lockstep::str(
      command, ": the names of the images in ", directory,
      " are not those of the run, so the images that the network was trained on cannot be "
      "identified; use --split all, or --data with images that are new to the network"));
}

// Unreadable images are kept, because the command names them, and because a run that skips them has
// split the images with them.
EvaluatedData load_part(const std::string& command, const EvaluatedDataArguments& arguments,
                        const TrainedModel& model, const std::optional<std::string>& directory,
                        const std::string& split) {
  const ImageReader::Decoding decoding = decoding_of(command, model);
  const bool upright = arguments.exif_transpose || model.note(kExifTransposeNote) != nullptr;
  if (split == kAllParts) {
    ImageDataset images =
        load_image_folder(*directory, {.decoding = decoding,
                                       .max_image_pixels = arguments.max_image_pixels,
                                       .exif_transpose = upright,
                                       .keep_unreadable = true});
    const std::string name = images.name();
    return {std::move(images), name, split};
  }
  report::DownloadBar bar(std::cerr, detect_terminal(STDERR_FILENO));
  recipes::RecipeDataOptions options{.directory = directory,
                                     .max_image_pixels = arguments.max_image_pixels,
                                     .decoding = decoding,
                                     .exif_transpose = upright,
                                     .keep_unreadable = true,
                                     .cache_bytes = 0,  // each image is read once
                                     .progress = std::ref(bar),
                                     .message = [](const std::string& text) {
                                       std::cerr << "note: " << with_flags(text) << std::endl;
                                     }};
  if (const std::string* const seed = model.setting("seed")) {
    options.seed = number_of<std::uint64_t>(model, "seed", *seed);
  }
  const std::string* const fraction = model.note(kValidationFractionNote);
  if (fraction != nullptr && !has_train_folder(directory)) {
    options.validation_fraction = number_of<double>(model, kValidationFractionNote, *fraction);
  }
  const recipes::RecipeData data = model.recipe.load_data(options);
  require_split_of_run(command, model, data, directory.value_or(""));
  const std::string* const trained_on = model.setting("dataset");
  if (!arguments.data && trained_on != nullptr && *trained_on != utf8_text(data.description)) {
    std::cerr << "note: the network was trained on " << *trained_on << " and is evaluated on "
              << data.description << std::endl;
  }
  return {split == kTrainPart ? data.train : data.load_test(), data.description, split};
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
                  "Folder of the images to evaluate on, or of a known data set's files (default: "
                  "the run's)")
      ->type_name("FOLDER")
      ->check(not_empty());
  command
      .add_option("--split", to.split,
                  "Part to evaluate on: " + join(part_names()) +
                      " (default: validation, and all for a --data FOLDER without a folder "
                      "train; all is for " +
                      only_recipes(splits_folder) + ")")
      ->check(not_empty());
  add_max_image_pixels_option(command, to.max_image_pixels);
  command.add_flag("--exif-transpose", to.exif_transpose,
                   "Turn photographs upright by their EXIF orientation, which is ignored otherwise "
                   "(folders of images only, default: as in the run)");
}

void check_evaluated_data(const std::string& command, const EvaluatedDataArguments& arguments) {
  check_max_image_pixels(command, arguments.max_image_pixels);
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
