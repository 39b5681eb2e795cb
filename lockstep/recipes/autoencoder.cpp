// A convolutional auto-encoder on any folder with subfolders of images, resized to squares.
#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/models/autoencoder.h>
#include <lockstep/recipes/autoencoder_task.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/recipes/program_recipe.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep::recipes {
namespace {

constexpr std::int64_t kDefaultSide = 160;
constexpr std::int64_t kMostSide = 4000;
// Holds more than four thousand photographs of the default size.
constexpr std::int64_t kUsualCacheBytes = std::int64_t{1} << 30;

// Scales pixels to the range 0 to 1, in which the net's output should be.
Normalize unit_range() { return {.mean = {0, 0, 0}, .std = {1, 1, 1}}; }

int checked_side(std::int64_t side) {
  constexpr std::int64_t kStride = AutoencoderImpl::kStride;
  OptionCheck("recipe autoencoder")
      .in_range("the image size", static_cast<double>(side), kStride, kMostSide);
  if (side % kStride != 0) {
    const std::int64_t below = side / kStride * kStride;
    throw ConfigError(lockstep::str("recipe autoencoder: the image size must be a multiple of ",
                                    kStride, ", which the net pools to one pixel, got ", side,
                                    "; use ", below, " or ", below + kStride));
  }
  return static_cast<int>(side);
}

// The recipe with a program in the place of its net.
Recipe autoencoder_with_program(const RecipeChoices& choices) {
  const ImageProgram program =
      read_image_program("recipe autoencoder", *choices.program, choices.image_size, kDefaultSide);
  Recipe recipe = autoencoder_recipe();
  const ImageSize size(static_cast<int>(program.height), static_cast<int>(program.width));
  recipe.train_augmentation = {Resize{size}, unit_range()};
  recipe.test_augmentation = recipe.train_augmentation;
  recipe.input = {3, size.height, size.width};
  // In channels-last the bits would not be those of Python.
  recipe.channels_last = false;
  recipe.offers_channels_last = true;
  recipe.max_stages = kMostStagesOfPrograms;
  recipe.load_data = [size](const RecipeDataOptions& options) {
    return load_folder_split(
        options,
        {.recipe = "autoencoder", .cached_size = size, .default_cache_bytes = kUsualCacheBytes});
  };
  recipe.make_task = [program](const TaskOptions&) {
    return make_program_autoencoder(program, unit_range());
  };
  recipe.choices = {{kProgramChoice, program.path}};
  if (choices.image_size) recipe.choices[kImageSizeChoice] = std::to_string(*choices.image_size);
  return recipe;
}

}  // namespace

Recipe autoencoder_recipe(const RecipeChoices& choices) {
  if (choices.program) return autoencoder_with_program(choices);
  const int side = checked_side(choices.image_size.value_or(kDefaultSide));
  const Augmentation resize_only = {Resize{side}, unit_range()};
  return {.name = "autoencoder",
          .summary =
              "any folder with subfolders of images, or a pack, a convolutional auto-encoder (8 "
              "thousand parameters)",
          .defaults = {.global_batch = 64,
                       .max_epochs = 10,
                       .optimizer = AdamOptions{.lr = 1e-3},
                       .schedule = {}},
          .train_augmentation = resize_only,
          .test_augmentation = resize_only,
          .input = {3, side, side},
          .channels_last = true,
          .load_data =
              [side](const RecipeDataOptions& options) {
                return load_folder_split(options, {.recipe = "autoencoder",
                                                   .cached_size = ImageSize{side},
                                                   .default_cache_bytes = kUsualCacheBytes});
              },
          .reads_image_folder = true,
          .splits_folder = true,
          .make_task = [](const TaskOptions&) -> std::unique_ptr<Task> {
            return std::make_unique<AutoencoderTask>(Autoencoder(), unit_range());
          },
          .takes_program = true,
          .choose = autoencoder_recipe,
          .choices = {{kImageSizeChoice, std::to_string(side)}}};
}

}  // namespace lockstep::recipes
