// ResNet-50 for several devices: the model of PyTorch's tutorial on model parallelism.
#include <lockstep/data/datasets/random_images.h>
#include <lockstep/models/resnet.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/recipes/resnet_task.h>

namespace lockstep::recipes {
namespace {

constexpr int kSide = 128;

RecipeData load_or_generate(const RecipeDataOptions& options) {
  if (options.directory && holds_packs(*options.directory)) {
    return load_folder_split(options, {.recipe = "resnet50-split"});
  }
  if (options.directory) return load_train_and_val(options, "resnet50-split");
  return {.description = "generated images",
          .train = data::make_random_images(Split::kTrain, {}),
          .load_test = [] { return data::make_random_images(Split::kTest, {}); }};
}

std::unique_ptr<Task> make_split_task(const TaskOptions& options) {
  return make_resnet_task(resnet50(ResNetStem::kImageNet, options.num_classes));
}

}  // namespace

Recipe resnet50_split_recipe() {
  const Normalize normalize = {.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
  return {.name = "resnet50-split",
          .summary =
              "generated 128x128 images, a folder with train/ and val/, or a pack, ResNet-50 (25 "
              "million parameters), divided into stages with --strategy pipeline",
          .defaults = {.global_batch = 120,
                       .max_epochs = 3,
                       .optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4},
                       .schedule = {.kind = ScheduleKind::kCosine}},
          .train_augmentation = {RandomResizedCrop{kSide}, RandomHorizontalFlip{}, normalize},
          .test_augmentation = {Resize{kSide * 8 / 7, /*shorter_side=*/true}, CenterCrop{kSide},
                                normalize},
          .input = {3, kSide, kSide},
          .channels_last = true,
          .load_data = load_or_generate,
          .reads_image_folder = true,
          .max_stages = 16,
          .make_task = make_split_task};
}

}  // namespace lockstep::recipes
