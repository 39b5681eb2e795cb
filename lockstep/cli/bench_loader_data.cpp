#include <lockstep/cli/bench_loader_data.h>

#include <filesystem>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/image_folder.h>
#include <lockstep/data/packed_images.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const Recipe* recipe_named(const std::string& name) {
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return &recipe;
  }
  return nullptr;
}

ImageDataset load(const std::string& dataset, const Recipe* recipe, const std::string& data) {
  if (recipe) {
    RecipeDataOptions options;
    if (!data.empty()) options.directory = data;
    return recipe->load_data(options).train;
  }
  if (!data.empty()) {
    throw ConfigError("bench loader: --data belongs to the data set of a recipe; --dataset names a "
                      "folder or a pack itself");
  }
  if (fs::is_directory(dataset)) return load_image_folder(dataset);
  if (fs::exists(dataset)) return load_packed_images(dataset);
  std::vector<std::string> names;
  for (const Recipe& known : recipes()) names.push_back(known.name);
  throw ConfigError(lockstep::str("bench loader: --dataset must be one of ", join(names),
                                  ", a folder of images or a pack, got '", dataset, "'"));
}

// The mean and deviation of ImageNet's photographs.
Normalize normalize_of(const Recipe* recipe, std::int64_t channels) {
  if (recipe) return std::get<Normalize>(recipe->test_augmentation.back());
  if (channels == 3) return {.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
  return {.mean = std::vector<double>(channels, 0.5), .std = std::vector<double>(channels, 0.25)};
}

}  // namespace

BenchLoaderData bench_loader_data(const std::string& dataset, const std::string& operators, int size,
                                  const std::string& data) {
  const OptionCheck check("bench loader");
  check.one_of("--operators", operators,
               {"recipe", "normalize", "crop-flip", "crop-flip-cutout", "random-resized-crop"});
  check.in_range("--size", size, 1, 65536);
  const Recipe* recipe = recipe_named(dataset);
  if (operators == "recipe" && !recipe) {
    throw ConfigError("bench loader: --operators recipe is for the data set of a recipe; use "
                      "random-resized-crop");
  }
  ImageDataset images = load(dataset, recipe, data);
  if (operators == "recipe") return {std::move(images), recipe->train_augmentation};
  const ImageShape shape = images.shape();
  Augmentation list;
  if (operators == "random-resized-crop") {
    list = {RandomResizedCrop{size}, RandomHorizontalFlip{}};
  } else if (operators != "normalize") {
    list = {Pad{4}, RandomCrop{{static_cast<int>(shape.height), static_cast<int>(shape.width)}},
            RandomHorizontalFlip{}};
  }
  list.push_back(normalize_of(recipe, shape.channels));
  // A quarter of the image's side, 8 pixels of CIFAR's.
  if (operators == "crop-flip-cutout") list.push_back(Cutout{static_cast<int>(shape.width / 4)});
  return {std::move(images), std::move(list)};
}

}  // namespace lockstep
