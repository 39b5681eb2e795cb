// Classification of any folder of images by a ResNet, augmented as in torchvision's reference.
#include <algorithm>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/models/resnet.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/recipes/program_recipe.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/recipes/resnet_task.h>

namespace lockstep::recipes {
namespace {

constexpr const char* kClassifyOwner = "recipe classify";
constexpr const char* kDefaultNet = "resnet18";
constexpr std::int64_t kUsualSide = 224;
// The net halves the side five times: at 64, a batch of one image still has a variance per channel.
constexpr std::int64_t kLeastSide = 64;
constexpr std::int64_t kLargestSide = 4096;

struct Net {
  ResNet (*make)(ResNetStem stem, std::int64_t num_classes);
  int blocks;  // the largest number of stages
};

const detail::NamedValues<Net>& named_nets() {
  static const detail::NamedValues<Net> all = {
      {"resnet18", {resnet18, 8}}, {"resnet34", {resnet34, 16}}, {"resnet50", {resnet50, 16}}};
  return all;
}

RecipeData load_classes(const RecipeDataOptions& options) {
  RecipeData data = load_folder_split(options, {.recipe = "classify"});
  if (data.train.num_classes() < 2 && !options.whole) {
    const std::vector<std::string>& names = data.train.class_names();
    throw DataError(lockstep::str("classify: ", *options.directory, " has one class",
                                  names.empty() ? "" : ", '" + names[0] + "'",
                                  "; a classifier needs at least two, each a folder of its own"));
  }
  return data;
}

// The recipe at another size of images, with a program in the place of its net.
Recipe classify_with_program(const RecipeChoices& choices) {
  const ImageProgram program =
      read_image_program(kClassifyOwner, *choices.program, choices.image_size, kUsualSide);
  Recipe recipe = classify_recipe();
  const Augmentation usual = recipe.test_augmentation;
  const ImageSize size(static_cast<int>(program.height), static_cast<int>(program.width));
  recipe.train_augmentation.front() = RandomResizedCrop{size};
  const int side = std::max(size.height, size.width);
  recipe.test_augmentation = {Resize{side * 8 / 7, /*shorter_side=*/true}, CenterCrop{size},
                              usual.back()};
  recipe.input = {3, size.height, size.width};
  // In channels-last the bits would not be those of Python.
  recipe.channels_last = false;
  recipe.offers_channels_last = true;
  recipe.max_stages = kMostStagesOfPrograms;
  recipe.make_task = [program](const TaskOptions& options) {
    return make_program_classifier(program, options.num_classes);
  };
  recipe.choices = {{kProgramChoice, program.path}};
  if (choices.image_size) recipe.choices[kImageSizeChoice] = std::to_string(*choices.image_size);
  return recipe;
}

}  // namespace

Recipe classify_recipe(const RecipeChoices& choices) {
  if (choices.program) return classify_with_program(choices);
  const std::string net_name = choices.model.value_or(kDefaultNet);
  const Net net = named_nets().value_of(kClassifyOwner, "the model", net_name);
  const std::int64_t size = choices.image_size.value_or(kUsualSide);
  OptionCheck(kClassifyOwner)
      .in_range("the image size", static_cast<double>(size), kLeastSide, kLargestSide);
  const int side = static_cast<int>(size);
  // The mean and deviation of ImageNet's images, on which the published weights were trained.
  const Normalize normalize = {.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
  return {
      .name = "classify",
      .summary =
          "any folder with a subfolder of images for each class, or a pack, ResNet-18, 34 or 50 "
          "(--model)",
      .defaults = {.global_batch = 64,
                   .max_epochs = 30,
                   .optimizer = SgdOptions{.lr = 0.025, .momentum = 0.9, .weight_decay = 1e-4},
                   .schedule = {.kind = ScheduleKind::kCosine, .warmup_epochs = 1}},
      .train_augmentation = {RandomResizedCrop{side}, RandomHorizontalFlip{}, normalize},
      // 256 for 224, as in torchvision's reference.
      .test_augmentation = {Resize{side * 8 / 7, /*shorter_side=*/true}, CenterCrop{side},
                            normalize},
      .input = {3, side, side},
      .channels_last = true,
      .load_data = load_classes,
      .reads_image_folder = true,
      .splits_folder = true,
      .max_stages = net.blocks,
      .make_task =
          [make = net.make](const TaskOptions& options) {
            return make_resnet_task(make(ResNetStem::kImageNet, options.num_classes));
          },
      .models = named_nets().names(),
      .takes_program = true,
      .choose = classify_recipe,
      .choices = {{kModelChoice, net_name}, {kImageSizeChoice, std::to_string(side)}}};
}

}  // namespace lockstep::recipes
