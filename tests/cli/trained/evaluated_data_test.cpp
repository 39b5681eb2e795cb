// Which images a trained network is evaluated on, and how they are loaded.
#include <lockstep/cli/trained/evaluated_data.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/preparation/pack_images.h>
#include <tests/support/colour_folder.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

using recipes::RecipeDataOptions;
using testing::EndsWith;
using testing::HasSubstr;
using testing_support::message_of;

// `count` images of the classes with these names, all of the first class.
ImageDataset plain_dataset(std::int64_t count, std::vector<std::string> names = {}) {
  static const std::array<std::uint8_t, 64> bytes{};
  const ImageShard shard = {.images = bytes.data(),
                            .image_stride = 1,
                            .labels = bytes.data(),
                            .label_stride = 1,
                            .count = count};
  const auto classes = static_cast<std::int64_t>(names.empty() ? 10 : names.size());
  return ImageDataset("images", {1, 1, 1}, classes, {shard}, std::move(names));
}

class EvaluatedDataTest : public ::testing::Test {
 protected:
  EvaluatedDataTest() {
    model_.weights = "net.safetensors";
    model_.recipe = recipes::find_recipe("classify");
    model_.recipe.load_data = [this](const RecipeDataOptions& options) {
      got_ = options;
      if (options.message) options.message("set DataRequest::directory");
      return recipes::RecipeData{.description = "photos",
                                 .train = plain_dataset(6, classes_),
                                 .load_test = [this] { return plain_dataset(4, classes_); },
                                 .fingerprint = "abc",
                                 .is_split_at_random = is_split_at_random_};
    };
    model_.notes["data"] = folder_.path().string();
  }

  // Loads with `arguments_`, and keeps what was printed in `said_`.
  EvaluatedData load() {
    testing::internal::CaptureStderr();
    try {
      EvaluatedData data = load_evaluated_data("evaluate", arguments_, model_);
      said_ = testing::internal::GetCapturedStderr();
      return data;
    } catch (...) {
      said_ = testing::internal::GetCapturedStderr();
      throw;
    }
  }
  template <class Thrown>
  std::string refusal() {
    return message_of<Thrown>([&] { load(); });
  }
  // The net of MNIST, which classifies. Its recipe neither splits nor reads a folder.
  void become_mnist() {
    const auto load_data = model_.recipe.load_data;
    model_.recipe = recipes::find_recipe("mnist");
    std::unique_ptr<Task> task = model_.recipe.make_task({});
    model_.task.reset(&dynamic_cast<OutputTask&>(*task.release()));
    model_.recipe.load_data = load_data;
  }

  testing_support::TemporaryDirectory folder_;
  TrainedModel model_;
  EvaluatedDataArguments arguments_;
  RecipeDataOptions got_;
  std::vector<std::string> classes_;
  bool is_split_at_random_ = true;
  std::string said_;
};

// Every note has a value of its own, so that none can take the place of another.
TEST_F(EvaluatedDataTest, IsLoadedAsTheRunLoadedIt) {
  EvaluatedData data = load();
  EXPECT_EQ(data.images.size(), 4);
  EXPECT_EQ(data.description, "photos");
  EXPECT_EQ(data.split, "validation");
  EXPECT_EQ(got_.directory, folder_.path().string()) << "the run's";
  EXPECT_TRUE(got_.may_download);
  EXPECT_EQ(got_.max_image_pixels, kMaxImagePixels);
  EXPECT_EQ(got_.decoding, ImageReader::Decoding::kExact);
  EXPECT_FALSE(got_.exif_transpose);
  EXPECT_TRUE(got_.keep_unreadable);
  EXPECT_FALSE(got_.whole);
  EXPECT_EQ(got_.seed, 0U);
  EXPECT_FALSE(got_.validation_fraction);
  EXPECT_EQ(got_.cache_bytes, 0) << "each image is read once";
  EXPECT_TRUE(got_.progress);
  EXPECT_EQ(said_, "note: set --data\n");

  model_.notes["decoding"] = "scaled";
  model_.notes["exif_transpose"] = "yes";
  model_.notes["validation_fraction"] = "0.25";
  model_.settings = {{"seed", "7"}, {"split", "abc"}, {"dataset", "photos"}};
  arguments_.max_image_pixels = 8;
  arguments_.split = "train";
  data = load();
  EXPECT_EQ(data.images.size(), 6);
  EXPECT_EQ(data.split, "train");
  EXPECT_EQ(got_.max_image_pixels, 8);
  EXPECT_EQ(got_.decoding, ImageReader::Decoding::kScaled);
  EXPECT_TRUE(got_.exif_transpose);
  EXPECT_EQ(got_.validation_fraction, 0.25);
  EXPECT_EQ(got_.seed, 7U);
  EXPECT_FALSE(got_.whole);
  EXPECT_EQ(said_, "note: set --data\n") << "it is the run's data set";

  arguments_.split = "all";
  data = load();
  EXPECT_TRUE(got_.whole);
  EXPECT_EQ(data.images.size(), 4);
  EXPECT_EQ(data.split, "all");
}

TEST_F(EvaluatedDataTest, MayBeOtherImages) {
  const testing_support::TemporaryDirectory others;
  model_.settings["dataset"] = "other photos";
  load();
  EXPECT_THAT(said_, EndsWith("note: the network was trained on other photos and is evaluated on "
                              "photos\n"));
  arguments_.data = others.path().string();
  EXPECT_EQ(load().split, "all") << "a folder without parts";
  EXPECT_EQ(got_.directory, others.path().string());
  EXPECT_TRUE(got_.whole);
  EXPECT_EQ(said_, "note: set --data\n");
  arguments_.split = "validation";
  EXPECT_EQ(load().split, "validation");
  EXPECT_FALSE(got_.whole);

  // A folder with parts has a split of its own, for which no share is given, and all images have
  // none.
  model_.notes["validation_fraction"] = "0.25";
  load();
  EXPECT_EQ(got_.validation_fraction, 0.25);
  arguments_.split.reset();
  EXPECT_EQ(load().split, "all");
  EXPECT_FALSE(got_.validation_fraction);
  others.write("train/cat/1.png", "");
  EXPECT_EQ(load().split, "validation");
  EXPECT_FALSE(got_.whole);
  EXPECT_FALSE(got_.validation_fraction);
}

// The option turns any images; what the run did is repeated with files only.
TEST_F(EvaluatedDataTest, TurnsPhotographsAsTheRunDid) {
  testing_support::write_colours(folder_, "photos", 4, 2);
  pack_images(load_image_folder(folder_ / "photos"), folder_ / "pixels.pack");
  pack_images(load_image_folder(folder_ / "photos"), folder_ / "files.pack", {.keep_files = true});
  const auto is_turned = [&](const char* name) {
    arguments_.data = (folder_ / name).string();
    load();
    return got_.exif_transpose;
  };
  for (const char* name : {"photos", "pixels.pack", "files.pack"}) {
    EXPECT_FALSE(is_turned(name)) << name;
    arguments_.exif_transpose = true;
    EXPECT_TRUE(is_turned(name)) << name;
    arguments_.exif_transpose = false;
  }
  model_.notes["exif_transpose"] = "yes";
  EXPECT_TRUE(is_turned("photos"));
  EXPECT_TRUE(is_turned("files.pack"));
  EXPECT_FALSE(is_turned("pixels.pack")) << "they are as they were packed";

  become_mnist();
  model_.notes.erase("data");
  arguments_ = {.exif_transpose = true};
  const std::string text =
      "evaluate: --exif-transpose has no effect on mnist without a folder of images; remove it";
  EXPECT_EQ(refusal<ConfigError>(), text);
  arguments_.data = folder_.path().string();
  EXPECT_EQ(refusal<ConfigError>(), text) << "its folder holds no image files";
  model_.recipe.reads_image_folder = true;
  EXPECT_EQ(refusal<ConfigError>(), "nothing was thrown");
}

TEST_F(EvaluatedDataTest, MustBeSplitAsItWasInTheRun) {
  model_.settings["split"] = "before";
  const std::string folder = folder_.path().string();
  const std::string end =
      " are not those of the run, so the images that the network was trained on cannot be "
      "identified; use --split all, or --data with images that are new to the network";
  EXPECT_EQ(refusal<DataError>(), "evaluate: the names of the images in " + folder + end);
  testing_support::write_colours(folder_, "photos", 4, 2);
  pack_images(load_image_folder(folder_ / "photos"), folder_ / "one.pack");
  arguments_.data = (folder_ / "one.pack").string();
  EXPECT_EQ(refusal<DataError>(), "evaluate: the images in " + *arguments_.data + end);
  is_split_at_random_ = false;
  EXPECT_EQ(refusal<DataError>(), "nothing was thrown") << "the folder has a split of its own";
  is_split_at_random_ = true;
  model_.settings["split"] = "abc";
  EXPECT_EQ(refusal<DataError>(), "nothing was thrown");
}

TEST_F(EvaluatedDataTest, NeedsWhatTheNotesShouldSay) {
  model_.settings["seed"] = "7x";
  EXPECT_EQ(refusal<CheckpointError>(), "net.safetensors: its seed must be a number, got '7x'");
  model_.settings["seed"] = "18446744073709551615";
  EXPECT_EQ(refusal<CheckpointError>(), "nothing was thrown");
  EXPECT_EQ(got_.seed, 18446744073709551615U);
  model_.notes["validation_fraction"] = "a half";
  EXPECT_EQ(refusal<CheckpointError>(),
            "net.safetensors: its validation_fraction must be a number, got 'a half'");
  model_.notes = {};
  EXPECT_EQ(refusal<ConfigError>(),
            "evaluate: net.safetensors does not say which images the run was trained on; give "
            "--data PATH, a folder of images with a folder for each class, or a pack");
  model_.recipe.splits_folder = false;
  EXPECT_EQ(refusal<ConfigError>(), "nothing was thrown") << "the recipe finds its own data";
  EXPECT_FALSE(got_.directory);
}

TEST_F(EvaluatedDataTest, HasAllImagesOnlyOfFoldersAndPacks) {
  become_mnist();
  arguments_.split = "all";
  EXPECT_EQ(
      refusal<ConfigError>(),
      "evaluate: --split all is available only for classify, autoencoder, program and packs; use "
      "--split validation or train with mnist");
  testing_support::write_colours(folder_, "photos", 4, 2);
  pack_images(load_image_folder(folder_ / "photos"), folder_ / "one.pack");
  arguments_.data = (folder_ / "one.pack").string();
  EXPECT_EQ(load().split, "all");
  arguments_.split.reset();
  EXPECT_EQ(load().split, "all") << "a pack without parts";
  arguments_.data.reset();
  EXPECT_EQ(load().split, "validation");
}

// The message names one of several differences.
TEST_F(EvaluatedDataTest, MustHaveTheClassesOfTheModel) {
  become_mnist();
  model_.classes = {"cat", "dog"};
  const auto refusal_of = [&](std::vector<std::string> names) {
    classes_ = std::move(names);
    return refusal<DataError>();
  };
  const std::string begin = "evaluate: the classes of images are not those of net.safetensors: ";
  const std::string end = "; the network has cat, dog";
  EXPECT_EQ(refusal_of({"cat", "dog"}), "nothing was thrown");
  EXPECT_EQ(refusal_of({"dog", "cat"}), begin + "they are in another order" + end);
  EXPECT_EQ(refusal_of({"cat"}), begin + "the class 'dog' is missing" + end);
  EXPECT_EQ(refusal_of({"cat", "dog", "owl"}), begin + "the network has no class 'owl'" + end);
  EXPECT_THAT(refusal_of({}), HasSubstr("the network has no class '9'")) << "their numbers";
  model_.classes = {};
  EXPECT_EQ(refusal_of({"owl"}), "nothing was thrown") << "the names are unknown";
  model_.classes = {"cat", "dog"};
  model_.task.reset();
  EXPECT_EQ(refusal_of({"owl"}), "nothing was thrown") << "a network that does not classify";
}

TEST_F(EvaluatedDataTest, IsCheckedBeforeItIsLoaded) {
  const auto refusal_of = [&](const EvaluatedDataArguments& arguments) {
    return message_of<ConfigError>([&] { check_evaluated_data("evaluate", arguments); });
  };
  EXPECT_EQ(refusal_of({}), "nothing was thrown");
  EXPECT_EQ(refusal_of({.data = folder_.path().string(), .split = "all", .max_image_pixels = 1}),
            "nothing was thrown");
  EXPECT_THAT(refusal_of({.data = (folder_ / "none").string()}),
              HasSubstr("evaluate: --data " + (folder_ / "none").string() + " does not exist"));
  EXPECT_EQ(refusal_of({.split = "test"}),
            "evaluate: --split must be one of validation, train, all, got 'test'");
  EXPECT_THAT(refusal_of({.max_image_pixels = 0}),
              HasSubstr("evaluate: --max-image-pixels must be from 1 to "));
}

}  // namespace
}  // namespace lockstep::cli
