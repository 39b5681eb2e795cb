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
#include <lockstep/data/datasets/batch_dataset.h>
#include <lockstep/data/datasets/dataset.h>
#include <lockstep/data/files/download.h>
#include <lockstep/formats/image.h>
#include <lockstep/optim/options.h>
#include <lockstep/parallel/pipeline/stage_module.h>
#include <lockstep/train/optimization/schedule.h>
#include <lockstep/train/task/task.h>

namespace lockstep::recipes {

struct RecipeDefaults {
  std::int64_t global_batch = 128;  ///< images per step, over all ranks
  std::int64_t max_epochs = 10;
  OptimizerOptions optimizer{};
  ScheduleOptions schedule{};
};

struct RecipeDataOptions {
  /// --data: the only place to search. A folder, or a file that pack_images() wrote, on which every
  /// recipe can train.
  std::optional<std::string> directory{};
  bool may_download = true;  ///< false: behave as if there were no network
  /// Image files with more pixels are refused when read (Recipe::reads_image_folder only).
  std::int64_t max_image_pixels = kMaxImagePixels;
  /// How image files are decoded (Recipe::reads_image_folder only).
  ImageReader::Decoding decoding = ImageReader::Decoding::kExact;
  /// ImageFolderOptions::exif_transpose (Recipe::reads_image_folder only).
  bool exif_transpose = false;
  /// ImageFolderOptions::keep_unreadable (Recipe::reads_image_folder only).
  bool keep_unreadable = false;
  /// Seed of the split into training and validation images (packs and Recipe::splits_folder
  /// only).
  std::uint64_t seed = 0;
  /// Share of validation images, above 0 and below 1; absent: kValidationFraction, or the folder's
  /// own split (packs and Recipe::splits_folder only).
  std::optional<double> validation_fraction{};
  /// Whether to leave the images undivided: both parts are then all of them (packs and
  /// Recipe::splits_folder only).
  bool whole = false;
  /// Memory in bytes for decoded images (cache_images()), shared by this process and those that it
  /// forks; 0: no cache; absent: the recipe's default, or none for pixels of a pack (packs and
  /// Recipe::splits_folder only).
  std::optional<std::int64_t> cache_bytes{};
  /// Number of processes on this host that each load the data and share the host's memory.
  int local_processes = 1;
  DownloadProgress progress{};  ///< may be empty
  /// Called with one line that the user should know, such as a fallback; may be empty.
  std::function<void(const std::string&)> message{};
};

/// Samples that are rows of tensors: a batch has a tensor for each input of the model.
struct TensorParts {
  std::shared_ptr<const BatchDataset<Tensors>> train{};
  std::shared_ptr<const BatchDataset<Tensors>> validation{};
};

struct RecipeData {
  std::string description{};                  ///< describes the training data in words
  ImageDataset train{};                       ///< without images if there are `tensors`
  std::function<ImageDataset()> load_test{};  ///< called when the test images are first needed
  /// Identifies the names of the images, or the contents of packs, and their split into training
  /// and validation images: equal fingerprints mean equal names (contents) and split. Empty: not
  /// available.
  std::string fingerprint{};
  bool is_split_at_random = false;       ///< otherwise the folder has its own split
  double seconds_to_open = 0;            ///< time taken to find, list and open the data
  std::optional<TensorParts> tensors{};  ///< replaces the images (Recipe::make_tensor_task)

  std::int64_t training_samples() const { return tensors ? tensors->train->size() : train.size(); }
};

struct TaskOptions {
  /// Whether the network may use Lockstep's own kernels. Otherwise it computes with LibTorch's
  /// operations alone.
  bool fused_kernels = true;
  /// Number of classes in the data that the task will train on.
  std::int64_t num_classes = 0;
};

/// Names in Recipe::choices.
inline constexpr const char* kModelChoice = "model";
inline constexpr const char* kImageSizeChoice = "image_size";
inline constexpr const char* kProgramChoice = "program";
inline constexpr const char* kInputsChoice = "inputs";
inline constexpr const char* kImagesChoice = "images";

/// Share of the images of a folder or pack used for validation, unless specified otherwise.
inline constexpr double kValidationFraction = 0.2;

/// The model that a recipe trains, and its image size. An absent value means the recipe's default.
struct RecipeChoices {
  std::optional<std::string> model{};
  std::optional<std::int64_t> image_size{};  ///< side of the model's images in pixels
  std::optional<std::string> program{};      ///< file of an exported program, the model to train
  /// Which inputs of the program get images and labels: "NAME=images,NAME=labels". Absent: its data
  /// are tensors.
  std::optional<std::string> inputs{};
  /// One of known_images(), whose images `inputs` are. Absent: those of a folder or pack.
  std::optional<std::string> images{};
};

/// Immutable. load_data() does not start LibTorch threads, so a launcher may call it before it
/// forks; it throws ConfigError and DataError like find_data(). make_task() draws the initial
/// weights from LibTorch's generator.
struct Recipe {
  std::string name{};
  std::string summary{};  ///< one line for --help
  RecipeDefaults defaults{};
  Augmentation train_augmentation{};
  Augmentation test_augmentation{};
  ImageShape input{};          ///< shape of the model's input images
  bool channels_last = false;  ///< memory format of images and of the module's parameters
  /// Whether a recipe that is not in channels_last by default can be.
  bool offers_channels_last = false;
  std::function<RecipeData(const RecipeDataOptions& options)> load_data{};
  bool has_fused_kernels = false;  ///< whether TaskOptions::fused_kernels makes a difference
  /// Whether the recipe decodes the image files of the given folder.
  bool reads_image_folder = false;
  /// Whether the recipe can train on any folder of images, which it splits itself: it then supports
  /// RecipeDataOptions::validation_fraction and cache_bytes.
  bool splits_folder = false;
  /// The largest number of stages that OutputTask::stages() supports; 0: the model cannot be cut.
  int max_stages = 0;
  std::function<std::unique_ptr<Task>(const TaskOptions& options)> make_task{};
  /// Replaces make_task if the data are RecipeData::tensors.
  std::function<std::unique_ptr<BatchTask<Tensors>>(const TaskOptions& options)> make_tensor_task{};
  /// Names for RecipeChoices::model; empty: the recipe has one model.
  std::vector<std::string> models{};
  /// Whether RecipeChoices::program can replace the model.
  bool takes_program = false;
  /// Whether the recipe requires RecipeChoices::program, because it has no model of its own. The
  /// program returns its loss, and RecipeChoices::inputs may say which of its inputs get images.
  /// The recipe's task is not an OutputTask.
  bool needs_program = false;
  /// Returns the recipe for other choices. Empty if the recipe has one model of one size. Throws
  /// ConfigError for a model that is not among `models`, and for a size that the model does not
  /// support.
  std::function<Recipe(const RecipeChoices& choices)> choose{};
  /// The choices with which this recipe was made, as text by name, for checkpoints and reports:
  /// {"image_size", "160"}.
  std::map<std::string, std::string> choices{};
};

const std::vector<Recipe>& all_recipes();

/// Returns the recipe `name`. Throws ConfigError, listing the known names, for an unknown one.
const Recipe& find_recipe(const std::string& name);

/// Returns the recipe `name` with `choices`. Throws ConfigError for an unknown name and for choices
/// that the recipe does not offer.
Recipe chosen_recipe(const std::string& name, const RecipeChoices& choices);

/// Parses choices stored in Recipe::choices. Throws ConfigError for invalid text.
RecipeChoices choices_from(const std::map<std::string, std::string>& texts);

/// Throws ConfigError, naming the recipe, unless its model can be cut into this many stages.
void require_stages(const Recipe& recipe, int stages);

Recipe mnist_recipe();
Recipe cifar10_recipe();
Recipe resnet50_split_recipe();
Recipe classify_recipe(const RecipeChoices& choices = {});
Recipe autoencoder_recipe(const RecipeChoices& choices = {});
Recipe program_recipe(const RecipeChoices& choices = {});

/// The recipes whose images a program can be trained on: names for RecipeChoices::images.
const std::vector<std::string>& known_images();

}  // namespace lockstep::recipes
