#include <lockstep/cli/loader_data.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <utility>
#include <vector>

#include <lockstep/cli/data_choice.h>
#include <lockstep/cli/flag_names.h>
#include <lockstep/cli/image_options.h>
#include <lockstep/cli/operators_option.h>
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/datasets/open_images.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/report/download_bar.h>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

const recipes::Recipe* recipe_named(const std::string& name) {
  for (const recipes::Recipe& recipe : recipes::all_recipes()) {
    if (recipe.name == name && !recipe.needs_program) return &recipe;
  }
  return nullptr;
}

bool is_known_data(const std::string& name) {
  const std::vector<std::string>& names = known_data_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The default of --operators.
const char* usual_operators(const std::string& source, const recipes::Recipe* recipe) {
  if (recipe) return "recipe";
  return is_known_data(source) ? "crop-flip" : "random-resized-crop";
}

ImageDataset load_recipe(const recipes::Recipe& recipe, const LoaderDataChoice& choice) {
  report::DownloadBar bar(std::cerr, detect_terminal(STDERR_FILENO));
  const auto message = [](const std::string& text) {
    std::cerr << "note: " << with_flags(text) << std::endl;
  };
  return recipe
      .load_data({.directory = choice.directory,
                  .max_image_pixels = choice.max_image_pixels,
                  .decoding = choice.decoding,
                  .keep_unreadable = choice.keep_unreadable,
                  .cache_bytes = 0,  // the decoding itself is shown or timed
                  .progress = std::ref(bar),
                  .message = message})
      .train;
}

ImageDataset load(const std::string& command, const LoaderDataChoice& choice,
                  const recipes::Recipe* recipe) {
  if (choice.exif_transpose && (recipe || is_known_data(choice.source))) {
    throw exif_transpose_without_files(command, choice.source_option, choice.source);
  }
  if (recipe) return load_recipe(*recipe, choice);
  if (is_known_data(choice.source)) {
    return open_data(command,
                     {.source = choice.source, .split = {}, .directory = choice.directory});
  }
  if (choice.directory) {
    throw ConfigError(lockstep::str(command, ": --data belongs to a known data set (",
                                    join(known_data_names()), "); ", choice.source_option,
                                    " names a folder or a pack itself"));
  }
  std::error_code error;  // with one, the file's own message is better
  if (!fs::exists(choice.source, error) && !error) {
    throw unknown_source(command, choice.source_option, choice.source);
  }
  return data::open_images(choice.source, {.decoding = choice.decoding,
                                           .max_image_pixels = choice.max_image_pixels,
                                           .exif_transpose = choice.exif_transpose,
                                           .keep_unreadable = choice.keep_unreadable});
}

// Mean and deviation of ImageNet's images.
Normalize normalize_of(const recipes::Recipe* recipe, std::int64_t channels) {
  if (recipe) return std::get<Normalize>(recipe->test_augmentation.back());
  if (channels == 3) return {.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
  return {.mean = std::vector<double>(channels, 0.5), .std = std::vector<double>(channels, 0.25)};
}

Augmentation augmentation_of(OperatorList operators, const ImageShape& shape, int size,
                             const Normalize& normalize) {
  Augmentation list;
  if (operators == OperatorList::kRandomResizedCrop) {
    list = {RandomResizedCrop{size}, RandomHorizontalFlip{}};
  } else if (operators != OperatorList::kNormalize) {
    list = {Pad{4}, RandomCrop{{static_cast<int>(shape.height), static_cast<int>(shape.width)}},
            RandomHorizontalFlip{}};
  }
  list.push_back(normalize);
  // A quarter of the image's side: 8 pixels for CIFAR.
  if (operators == OperatorList::kCropFlipCutout) {
    list.push_back(Cutout{static_cast<int>(shape.width / 4)});
  }
  return list;
}

}  // namespace

LoaderData open_loader_data(const std::string& command, const LoaderDataChoice& choice) {
  const recipes::Recipe* recipe = recipe_named(choice.source);
  const std::string name = choice.operators.value_or(usual_operators(choice.source, recipe));
  const OptionCheck check(command);
  const OperatorList operators = chosen_value(command, "--operators", operator_choices(), name);
  check.in_range("--size", choice.size, 1, 65536);
  check_max_image_pixels(command, choice.max_image_pixels);
  ImageDataset images = load(command, choice, recipe);
  if (operators == OperatorList::kRecipe && !recipe) {
    throw ConfigError(command + ": --operators recipe is for the data set of a recipe; use " +
                      usual_operators(choice.source, recipe));
  }
  if (operators == OperatorList::kRecipe) {
    return {std::move(images), recipe->train_augmentation, name};
  }
  const ImageShape shape = images.shape();
  if (shape.height == 0 && operators != OperatorList::kRandomResizedCrop) {
    throw ConfigError(command + ": --operators " + name +
                      " needs images of one size, and those of " + images.name() +
                      " have each their own; use random-resized-crop");
  }
  return {std::move(images),
          augmentation_of(operators, shape, choice.size, normalize_of(recipe, shape.channels)),
          name};
}

}  // namespace lockstep::cli
