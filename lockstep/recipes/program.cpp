// Models that Python exported and that compute their own loss, such as Hugging Face's with labels.
#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/recipes/loss_program.h>
#include <lockstep/recipes/program_recipe.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/recipes/tensor_split.h>

namespace lockstep::recipes {
namespace {

constexpr const char* kProgramOwner = "recipe program";
constexpr std::int64_t kUsualImageSide = 224;

RecipeData load_images_of_folder(const RecipeDataOptions& options) {
  return load_folder_split(options, {.recipe = "program"});
}

// The recipe whose images and preparation `recipe` takes over.
Recipe recipe_of_images(const RecipeChoices& choices) {
  if (!choices.images) return classify_recipe();
  OptionCheck(kProgramOwner).one_of("the images", *choices.images, known_images());
  return find_recipe(*choices.images);
}

// Sets the data, its preparation and the task of a program that takes images.
void take_images(Recipe& recipe, const LossProgram& program, const RecipeChoices& choices) {
  const std::vector<ImageInput> inputs = parse_image_inputs(program, *choices.inputs);
  const auto at = std::ranges::find(inputs, ImageInput::kImages) - inputs.begin();
  const Recipe image_recipe = recipe_of_images(choices);
  const ImageShape usual = image_recipe.input;
  const ImageSize size = program_image_size(
      kProgramOwner, program.path, program.inputs[static_cast<std::size_t>(at)], usual.channels,
      choices.image_size, choices.images ? usual.height : kUsualImageSide);
  recipe.train_augmentation = image_recipe.train_augmentation;
  recipe.test_augmentation = image_recipe.test_augmentation;
  if (!choices.images) {
    recipe.train_augmentation.front() = RandomResizedCrop{size};
    const int side = std::max(size.height, size.width);
    recipe.test_augmentation = {Resize{side * 8 / 7, /*shorter_side=*/true}, CenterCrop{size},
                                image_recipe.test_augmentation.back()};
  } else if (size.height != usual.height || size.width != usual.width) {
    throw ConfigError(lockstep::str(kProgramOwner, ": ", program.path, " takes images of ",
                                    size.height, 'x', size.width, " pixels, but those of ",
                                    *choices.images, " have ", usual.height, 'x', usual.width));
  }
  recipe.input = {usual.channels, size.height, size.width};
  recipe.load_data = choices.images ? image_recipe.load_data : load_images_of_folder;
  recipe.make_task = [program, inputs](const TaskOptions&) {
    return make_image_loss_task(program, inputs);
  };
  recipe.choices[kInputsChoice] = *choices.inputs;
  if (choices.images) recipe.choices[kImagesChoice] = *choices.images;
  recipe.reads_image_folder = !choices.images;
}

void take_tensors(Recipe& recipe, const LossProgram& program) {
  recipe.input = {};
  recipe.reads_image_folder = false;
  recipe.load_data = [program](const RecipeDataOptions& options) {
    return load_tensor_split(options, program.path, program.inputs);
  };
  recipe.make_tensor_task = [program](const TaskOptions&) { return make_loss_task(program); };
}

}  // namespace

const std::vector<std::string>& known_images() {
  static const std::vector<std::string> names = {"mnist", "cifar10"};
  return names;
}

Recipe program_recipe(const RecipeChoices& choices) {
  // The optimizer is that of Hugging Face's Trainer.
  Recipe recipe{
      .name = "program",
      .summary =
          "a model that Python exported and that returns its loss (--program), on the tensors of a "
          ".safetensors file or of .npy files, or on images (--inputs)",
      .defaults = {.global_batch = 8,
                   .max_epochs = 3,
                   .optimizer = AdamWOptions{.lr = 5e-5, .weight_decay = 0},
                   .schedule = {.kind = ScheduleKind::kCosine}},
      .input = {3, kUsualImageSide, kUsualImageSide},
      .load_data = [](const RecipeDataOptions&) -> RecipeData {
        throw ConfigError("recipe program has no data of its own, only that of its program");
      },
      .reads_image_folder = true,
      .splits_folder = true,
      .takes_program = true,
      .needs_program = true,
      .choose = program_recipe};
  if (!choices.program) return recipe;
  const LossProgram program = read_loss_program(*choices.program);
  recipe.max_stages = kMostStagesOfPrograms;
  recipe.choices = {{kProgramChoice, program.path}};
  if (choices.image_size) recipe.choices[kImageSizeChoice] = std::to_string(*choices.image_size);
  if (choices.inputs) {
    take_images(recipe, program, choices);
  } else {
    take_tensors(recipe, program);
  }
  return recipe;
}

}  // namespace lockstep::recipes
