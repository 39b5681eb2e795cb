// CIFAR-10 with ResNet-18: pad, crop, flip; cosine schedule.
#include <lockstep/data/datasets/cifar10.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/models/resnet.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/recipes/recipe.h>
#include <lockstep/recipes/resnet_task.h>

namespace lockstep::recipes {
namespace {

constexpr ImageShape kPhotographShape = {3, 32, 32};
constexpr std::int64_t kObjects = 10;

RecipeData load_photographs(const RecipeDataOptions& options) {
  if (options.directory && holds_packs(*options.directory)) {
    return load_folder_split(
        options, {.recipe = "cifar10", .input = kPhotographShape, .num_classes = kObjects});
  }
  const auto directory = find_or_download_data({.name = "cifar10",
                                                .directory = options.directory,
                                                .may_download = options.may_download,
                                                .progress = options.progress});
  check_cifar10(directory, Split::kTest);  // fail now and not after an epoch
  return {.description = "CIFAR-10",
          .train = load_cifar10(directory, Split::kTrain),
          .load_test = [directory] { return load_cifar10(directory, Split::kTest); }};
}

std::unique_ptr<Task> make_photograph_task(const TaskOptions&) {
  return make_resnet_task(resnet18(ResNetStem::kCifar, kObjects));
}

}  // namespace

Recipe cifar10_recipe() {
  // Mean and standard deviation of each channel over the training images.
  const Normalize normalize = {.mean = {0.4914, 0.4822, 0.4465}, .std = {0.2470, 0.2435, 0.2616}};
  return {.name = "cifar10",
          .summary = "32x32 photographs in ten classes, ResNet-18 (11 million parameters)",
          .defaults = {.global_batch = 128,
                       .max_epochs = 30,
                       .optimizer = SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4},
                       .schedule = {.kind = ScheduleKind::kCosine, .warmup_epochs = 1}},
          .train_augmentation = {Pad{4}, RandomCrop{32}, RandomHorizontalFlip{}, normalize},
          .test_augmentation = {normalize},
          .input = kPhotographShape,
          .channels_last = true,
          .load_data = load_photographs,
          .max_stages = 8,
          .make_task = make_photograph_task};
}

}  // namespace lockstep::recipes
