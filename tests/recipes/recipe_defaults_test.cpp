// What each recipe trains with unless it is told otherwise: docs/recipes and the comparisons with
// PyTorch rely on these numbers.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/core/strings.h>
#include <lockstep/optim/options.h>
#include <lockstep/recipes/recipe.h>

namespace lockstep::testing_support {
namespace {

std::string size_text(const ImageSize& size) { return lockstep::str(size.height, "x", size.width); }

struct OperatorText {
  std::string operator()(const Pad& op) const {
    return lockstep::str("Pad ", op.pixels, " with ", op.fill);
  }
  std::string operator()(const RandomCrop& op) const { return "RandomCrop " + size_text(op.size); }
  std::string operator()(const CenterCrop& op) const { return "CenterCrop " + size_text(op.size); }
  std::string operator()(const Resize& op) const {
    return "Resize " + (op.shorter_side ? lockstep::str(op.size.height) : size_text(op.size));
  }
  std::string operator()(const RandomResizedCrop& op) const {
    return lockstep::str("RandomResizedCrop ", size_text(op.size), ", scale ", op.scale[0], " to ",
                         op.scale[1], ", ratio ", op.ratio[0], " to ", op.ratio[1]);
  }
  std::string operator()(const RandomHorizontalFlip& op) const {
    return lockstep::str("RandomHorizontalFlip ", op.probability);
  }
  std::string operator()(const Normalize& op) const {
    return lockstep::str("Normalize ", join(op.mean), " by ", join(op.std));
  }
  template <class Other>
  std::string operator()(const Other&) const {
    return "another operator";
  }
};

std::vector<std::string> texts_of(const Augmentation& operators) {
  std::vector<std::string> texts;
  for (const Operator& op : operators) texts.push_back(std::visit(OperatorText(), op));
  return texts;
}

struct Expected {
  const char* recipe;
  std::int64_t batch = 0;
  std::int64_t epochs = 0;
  OptimizerOptions optimizer{};
  const char* schedule;
  std::vector<std::string> train{};
  std::vector<std::string> test{};
  ImageShape input{};
  int stages = 0;
};

const std::vector<Expected>& expected_recipes() {
  // torchvision's numbers for ImageNet, and those that PyTorch's examples use for the others.
  static const std::string image_net = "Normalize 0.485, 0.456, 0.406 by 0.229, 0.224, 0.225";
  static const std::string cifar = "Normalize 0.4914, 0.4822, 0.4465 by 0.247, 0.2435, 0.2616";
  static const std::string digits = "Normalize 0.1307 by 0.3081";
  static const std::string flip = "RandomHorizontalFlip 0.5";
  static const std::vector<std::string> squares = {"Resize 160x160",
                                                   "Normalize 0, 0, 0 by 1, 1, 1"};
  const auto crop = [](int side) {
    return lockstep::str("RandomResizedCrop ", side, "x", side,
                         ", scale 0.08 to 1, ratio 0.75 to 1.33333");
  };
  static const std::vector<Expected> all = {
      {.recipe = "mnist",
       .batch = 128,
       .epochs = 10,
       .optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9},
       .schedule = "cosine to 0 over 10 epochs",
       .train = {digits},
       .test = {digits},
       .input = {1, 28, 28},
       .stages = 4},
      {.recipe = "cifar10",
       .batch = 128,
       .epochs = 30,
       .optimizer = SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4},
       .schedule = "cosine to 0 over 30 epochs after 1 of warm-up",
       .train = {"Pad 4 with 0", "RandomCrop 32x32", flip, cifar},
       .test = {cifar},
       .input = {3, 32, 32},
       .stages = 8},
      {.recipe = "classify",
       .batch = 64,
       .epochs = 30,
       .optimizer = SgdOptions{.lr = 0.025, .momentum = 0.9, .weight_decay = 1e-4},
       .schedule = "cosine to 0 over 30 epochs after 1 of warm-up",
       .train = {crop(224), flip, image_net},
       .test = {"Resize 256", "CenterCrop 224x224", image_net},
       .input = {3, 224, 224},
       .stages = 8},
      {.recipe = "autoencoder",
       .batch = 64,
       .epochs = 10,
       .optimizer = AdamOptions{.lr = 1e-3},
       .schedule = "constant",
       .train = squares,
       .test = squares,
       .input = {3, 160, 160},
       .stages = 0},
      {.recipe = "program",
       .batch = 8,
       .epochs = 3,
       .optimizer = AdamWOptions{.lr = 5e-5, .weight_decay = 0},
       .schedule = "cosine to 0 over 3 epochs",
       .input = {3, 224, 224},
       .stages = 0},
      {.recipe = "resnet50-split",
       .batch = 120,
       .epochs = 3,
       .optimizer = SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4},
       .schedule = "cosine to 0 over 3 epochs",
       .train = {crop(128), flip, image_net},
       .test = {"Resize 146", "CenterCrop 128x128", image_net},
       .input = {3, 128, 128},
       .stages = 16}};
  return all;
}

TEST(RecipeDefaults, AreThoseThatTheGuidesPromise) {
  EXPECT_EQ(recipes::all_recipes().size(), expected_recipes().size());
  for (const Expected& expected : expected_recipes()) {
    SCOPED_TRACE(expected.recipe);
    const recipes::Recipe& recipe = recipes::find_recipe(expected.recipe);
    EXPECT_EQ(recipe.defaults.global_batch, expected.batch);
    EXPECT_EQ(recipe.defaults.max_epochs, expected.epochs);
    EXPECT_EQ(to_settings(recipe.defaults.optimizer), to_settings(expected.optimizer));
    EXPECT_EQ(to_string(recipe.defaults.schedule, expected.epochs), expected.schedule);
    EXPECT_EQ(texts_of(recipe.train_augmentation), expected.train);
    EXPECT_EQ(texts_of(recipe.test_augmentation), expected.test);
    EXPECT_EQ(recipe.input, expected.input);
    EXPECT_EQ(recipe.max_stages, expected.stages);
    const std::string name = expected.recipe;
    EXPECT_EQ(recipe.channels_last, name != "mnist" && name != "program");
    EXPECT_EQ(recipe.has_fused_kernels, name == "mnist");
    EXPECT_EQ(recipe.needs_program, name == "program");
    EXPECT_EQ(recipe.splits_folder,
              name == "classify" || name == "autoencoder" || name == "program");
    EXPECT_EQ(recipe.reads_image_folder, name != "mnist" && name != "cifar10");
  }
  EXPECT_EQ(recipes::kValidationFraction, 0.2);
}

// The evaluation resizes by 8 / 7 of the side, as 256 is of 224.
TEST(RecipeDefaults, FollowTheSizeOfTheImages) {
  const recipes::Recipe small =
      recipes::chosen_recipe("classify", {.model = "resnet50", .image_size = 70});
  EXPECT_EQ(texts_of(small.test_augmentation).at(0), "Resize 80");
  EXPECT_EQ(texts_of(small.test_augmentation).at(1), "CenterCrop 70x70");
  EXPECT_EQ(texts_of(small.train_augmentation).at(0),
            "RandomResizedCrop 70x70, scale 0.08 to 1, ratio 0.75 to 1.33333");
  EXPECT_EQ(small.max_stages, 16);
  const recipes::Recipe squares = recipes::chosen_recipe("autoencoder", {.image_size = 80});
  EXPECT_EQ(texts_of(squares.train_augmentation).at(0), "Resize 80x80");
  EXPECT_EQ(texts_of(squares.test_augmentation).at(0), "Resize 80x80");
}

}  // namespace
}  // namespace lockstep::testing_support
