// The classic task: handwritten digits and the net of PyTorch's example.
#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/data/datasets/mnist.h>
#include <lockstep/data/datasets/synthetic_digits.h>
#include <lockstep/data/files/data_source.h>
#include <lockstep/models/mnist_net.h>
#include <lockstep/models/mnist_stages.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep::recipes {
namespace {

constexpr ImageShape kShape = {1, 28, 28};
constexpr std::int64_t kDigits = 10;

RecipeData generated_digits(const std::string& reason, const RecipeDataOptions& options) {
  if (options.message) {
    options.message(lockstep::str("MNIST was not found and could not be downloaded (", reason,
                                  "); training on generated digits instead"));
  }
  const int threads = static_cast<int>(available_cpus().size());
  return {.description = "generated digits",
          .train = make_synthetic_digits(Split::kTrain, {.threads = threads}),
          .load_test = [] { return make_synthetic_digits(Split::kTest); }};
}

// MNIST's format allows images of any size, but the net does not.
ImageDataset load_digits(const std::filesystem::path& directory, Split split) {
  ImageDataset digits = load_mnist(directory, split);
  if (digits.shape() != kShape) {
    throw DataError(lockstep::str(digits.name(), " in ", directory.string(), ": got images of ",
                                  digits.shape().height, "x", digits.shape().width,
                                  ", the net takes ", kShape.height, "x", kShape.width));
  }
  return digits;
}

RecipeData load_digits_or_generate(const RecipeDataOptions& options) {
  if (options.directory && holds_packs(*options.directory)) {
    return load_folder_split(options, {.recipe = "mnist", .input = kShape, .num_classes = kDigits});
  }
  const DataRequest request = {
      .name = "mnist", .directory = options.directory, .progress = options.progress};
  std::optional<std::filesystem::path> directory = find_data(request);
  if (!directory && !options.may_download) {
    return generated_digits("downloads are not allowed here", options);
  }
  if (!directory) {
    try {
      directory = find_or_download_data(request);
    } catch (const NetworkError& error) {  // the user can fix any other error
      return generated_digits(error.what(), options);
    }
  }
  check_mnist(*directory, Split::kTest, kShape);  // fail now and not after an epoch
  return {.description = "MNIST",
          .train = load_digits(*directory, Split::kTrain),
          .load_test = [path = *directory] { return load_digits(path, Split::kTest); }};
}

std::unique_ptr<Task> make_digits_task(const TaskOptions& options) {
  const MnistNet net(MnistNetOptions{.fused_kernels = options.fused_kernels});
  const auto cut = [net](int count) { return pipeline::stage_modules(mnist_stages(net, count)); };
  return std::make_unique<ClassificationTask>(net, ClassificationLoss::kNegativeLogLikelihood, cut);
}

}  // namespace

Recipe mnist_recipe() {
  const Normalize normalize = {.mean = {0.1307}, .std = {0.3081}};
  return {.name = "mnist",
          .summary = "handwritten digits, PyTorch's example net (22 thousand parameters)",
          .defaults = {.global_batch = 128,
                       .max_epochs = 10,
                       .optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9},
                       .schedule = {.kind = ScheduleKind::kCosine}},
          .train_augmentation = {normalize},
          .test_augmentation = {normalize},
          .input = kShape,
          .load_data = load_digits_or_generate,
          .has_fused_kernels = true,
          .max_stages = MnistNetImpl::kLayers,
          .make_task = make_digits_task};
}

}  // namespace lockstep::recipes
