// A recipe: everything that `lockstep train NAME` needs to know.
//
//   const Recipe& recipe = find_recipe("mnist");
//   RecipeData data = recipe.load_data({});
//   std::unique_ptr<Task> task = recipe.make_task({});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/data/augment.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/download.h>
#include <lockstep/formats/image.h>
#include <lockstep/optim/options.h>
#include <lockstep/train/schedule.h>
#include <lockstep/train/task.h>

namespace lockstep {

struct RecipeDefaults {
  std::int64_t global_batch = 128;  ///< images of a step, over all ranks
  std::int64_t max_epochs = 10;
  OptimizerOptions optimizer{};
  ScheduleOptions schedule{};
};

struct RecipeDataOptions {
  std::optional<std::string> directory{};  ///< --data: look here and nowhere else
  bool may_download = true;                ///< false: as if there were no network
  /// Image files of more pixels are refused when they are read (Recipe::reads_image_folder only).
  std::int64_t max_image_pixels = kMaxImagePixels;
  DownloadProgress progress{};             ///< may be empty
  /// Told in one line what the user should know, such as a fall-back; may be empty.
  std::function<void(const std::string&)> message{};
};

struct RecipeData {
  std::string description{};  ///< what is trained on, in words
  ImageDataset train;
  std::function<ImageDataset()> load_test{};  ///< called when the test images are first needed
};

struct TaskOptions {
  /// Off: the network computes with LibTorch's operations alone, without Lockstep's own kernels.
  bool fused_kernels = true;
  /// Number of classes in the data that the task will train on.
  std::int64_t num_classes = 0;
};

/// Immutable. load_data() uses no tensor, so that a launcher may call it before it forks; it throws
/// ConfigError and DataError as find_data() does. make_task() draws the initial weights from
/// LibTorch's generator.
struct Recipe {
  std::string name{};
  std::string summary{};  ///< one line for --help
  RecipeDefaults defaults{};
  Augmentation train_augmentation{};
  Augmentation test_augmentation{};
  ImageShape input{};  ///< of the images that the model takes
  bool channels_last = false;  ///< memory format of images and of the module's parameters
  RecipeData (*load_data)(const RecipeDataOptions& options) = nullptr;
  bool has_fused_kernels = false;  ///< whether TaskOptions::fused_kernels makes a difference
  /// Whether the recipe decodes the image files of the folder that it is given.
  bool reads_image_folder = false;
  /// The most stages that OutputTask::stages() can cut the task's model into; 0: it cannot be cut.
  int max_stages = 0;
  std::unique_ptr<Task> (*make_task)(const TaskOptions& options) = nullptr;
};

const std::vector<Recipe>& recipes();

/// ConfigError for an unknown name; it lists the known ones.
const Recipe& find_recipe(const std::string& name);

/// ConfigError, which names the recipe, unless its model can be cut into this many stages.
void require_stages(const Recipe& recipe, int stages);

Recipe mnist_recipe();
Recipe cifar10_recipe();
Recipe resnet50_split_recipe();

}  // namespace lockstep
