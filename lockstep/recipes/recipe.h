// A recipe: everything that `lockstep train NAME` needs to know.
//
//   const Recipe& recipe = find_recipe("mnist");
//   RecipeData data = recipe.load_data({});
//   std::unique_ptr<Task> task = recipe.make_task({});
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/data/augment/augment.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/files/download.h>
#include <lockstep/formats/image.h>
#include <lockstep/optim/options.h>
#include <lockstep/train/optimization/schedule.h>
#include <lockstep/train/task/task.h>

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
  /// How image files are decoded (Recipe::reads_image_folder only).
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;
  /// Seed of the split into training and validation images (Recipe::splits_folder only).
  std::uint64_t seed = 0;
  /// Share of the images that are validated on, above 0 and below 1; absent: kValidationFraction,
  /// or the folder's own split (Recipe::splits_folder only).
  std::optional<double> validation_fraction{};
  /// Memory for decoded images (cache_images()) in bytes, of this process and those that it forks;
  /// 0: none; absent: what the recipe finds useful (Recipe::splits_folder only).
  std::optional<std::int64_t> cache_bytes{};
  /// Processes of this host that load the data, each for itself, and share the host's memory.
  int local_processes = 1;
  DownloadProgress progress{};  ///< may be empty
  /// Told in one line what the user should know, such as a fall-back; may be empty.
  std::function<void(const std::string&)> message{};
};

struct RecipeData {
  std::string description{};  ///< what is trained on, in words
  ImageDataset train;
  std::function<ImageDataset()> load_test{};  ///< called when the test images are first needed
  /// Stands for the names of the images and for how they are split into those to train and those to
  /// validate on: equal where these are equal. Empty: the recipe does not tell.
  std::string fingerprint{};
  bool is_split_at_random = false;  ///< and not by the folder itself
  double seconds_to_open = 0;       ///< what it took to find, list and open all this
};

struct TaskOptions {
  /// Off: the network computes with LibTorch's operations alone, without Lockstep's own kernels.
  bool fused_kernels = true;
  /// Number of classes in the data that the task will train on.
  std::int64_t num_classes = 0;
};

/// Names in Recipe::choices.
inline constexpr const char* kModelChoice = "model";
inline constexpr const char* kImageSizeChoice = "image_size";

/// Share of a folder's images that are validated on, where nobody says otherwise.
inline constexpr double kValidationFraction = 0.2;

/// Which of its models a recipe trains, and on images of which size; absent: its default.
struct RecipeChoices {
  std::optional<std::string> model{};
  std::optional<std::int64_t> image_size{};  ///< pixels of a side of the model's images
};

/// Immutable. load_data() starts no thread of LibTorch's, so that a launcher may call it before it
/// forks; it throws ConfigError and DataError as find_data() does. make_task() draws the initial
/// weights from LibTorch's generator.
struct Recipe {
  std::string name{};
  std::string summary{};  ///< one line for --help
  RecipeDefaults defaults{};
  Augmentation train_augmentation{};
  Augmentation test_augmentation{};
  ImageShape input{};          ///< of the images that the model takes
  bool channels_last = false;  ///< memory format of images and of the module's parameters
  std::function<RecipeData(const RecipeDataOptions& options)> load_data{};
  bool has_fused_kernels = false;  ///< whether TaskOptions::fused_kernels makes a difference
  /// Whether the recipe decodes the image files of the folder that it is given.
  bool reads_image_folder = false;
  /// Whether the recipe can train on any folder of images, which it splits for itself: it then
  /// knows RecipeDataOptions::validation_fraction and cache_bytes.
  bool splits_folder = false;
  /// The most stages that OutputTask::stages() can cut the task's model into; 0: it cannot be cut.
  int max_stages = 0;
  std::function<std::unique_ptr<Task>(const TaskOptions& options)> make_task{};
  /// Names for RecipeChoices::model; none: the recipe has one model.
  std::vector<std::string> models{};
  /// The recipe for other choices. Empty: there is one model of one size. ConfigError for a model
  /// that is not among `models`, and for a size that the model cannot have.
  std::function<Recipe(const RecipeChoices& choices)> choose{};
  /// The choices that this recipe was made for, as text by name, for checkpoints and reports:
  /// {"image_size", "160"}.
  std::map<std::string, std::string> choices{};
};

const std::vector<Recipe>& recipes();

/// ConfigError for an unknown name; it lists the known ones.
const Recipe& find_recipe(const std::string& name);

/// Recipe `name` for `choices`. ConfigError also for choices that the recipe does not have.
Recipe chosen_recipe(const std::string& name, const RecipeChoices& choices);

/// The choices that Recipe::choices keeps as text. ConfigError for a text that is none.
RecipeChoices choices_from(const std::map<std::string, std::string>& texts);

/// ConfigError, which names the recipe, unless its model can be cut into this many stages.
void require_stages(const Recipe& recipe, int stages);

Recipe mnist_recipe();
Recipe cifar10_recipe();
Recipe resnet50_split_recipe();
Recipe classify_recipe(const RecipeChoices& choices = {});
Recipe autoencoder_recipe(const RecipeChoices& choices = {});

}  // namespace lockstep
