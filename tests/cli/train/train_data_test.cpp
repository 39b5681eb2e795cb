// How `lockstep train` asks the recipe for its data, and what it says meanwhile.
#include <lockstep/cli/train/train_data.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

using recipes::RecipeDataOptions;

recipes::RecipeData data_of_four_images() {
  static const std::array<std::uint8_t, 4> bytes{};
  const ImageShard shard = {.images = bytes.data(),
                            .image_stride = 1,
                            .labels = bytes.data(),
                            .label_stride = 1,
                            .count = 4};
  return {.description = "four images",
          .train = ImageDataset("small", {1, 1, 1}, 1, {shard}),
          .seconds_to_open = -1};
}

// Settings whose recipe calls `look` with the options of its data.
TrainSettings settings_with(const std::function<void(const RecipeDataOptions&)>& look) {
  TrainSettings settings;
  settings.recipe = std::make_shared<const recipes::Recipe>(
      recipes::Recipe{.name = "small", .load_data = [look](const RecipeDataOptions& options) {
                        look(options);
                        return data_of_four_images();
                      }});
  return settings;
}

// Every option has a value of its own, so that none can take the place of another.
TEST(TrainData, GivesTheRecipeWhatTheOptionsSay) {
  const testing_support::TemporaryDirectory folder;
  RecipeDataOptions got;
  TrainSettings settings = settings_with([&](const RecipeDataOptions& options) { got = options; });
  const recipes::RecipeData data = load_recipe_data(settings, {});
  EXPECT_EQ(data.description, "four images");
  EXPECT_GE(data.seconds_to_open, 0) << "is measured";
  EXPECT_FALSE(got.directory);
  EXPECT_TRUE(got.may_download);
  EXPECT_EQ(got.max_image_pixels, kMaxImagePixels);
  EXPECT_EQ(got.decoding, ImageReader::Decoding::kExact);
  EXPECT_FALSE(got.exif_transpose);
  EXPECT_FALSE(got.keep_unreadable);
  EXPECT_FALSE(got.whole);
  EXPECT_EQ(got.seed, 0U);
  EXPECT_FALSE(got.validation_fraction);
  EXPECT_FALSE(got.cache_bytes) << "the recipe's default";
  EXPECT_EQ(got.local_processes, 1);

  settings.data = folder.path().string();
  settings.max_image_pixels = 5;
  settings.decoding = ImageReader::Decoding::kScaled;
  settings.exif_transpose = true;
  settings.on_corrupt_image = OnCorruptImage::kSkip;
  settings.seed = 6;
  settings.of_recipe.validation_fraction = 0.75;
  settings.of_recipe.cache_bytes = 8;
  settings.worker = WorkerEnvironment{.rank = 1, .world_size = 6, .local_rank = 1};
  settings.worker->local_world_size = 3;
  load_recipe_data(settings, {.may_download = false, .stop = {}});
  EXPECT_EQ(got.directory, folder.path().string());
  EXPECT_FALSE(got.may_download);
  EXPECT_EQ(got.max_image_pixels, 5);
  EXPECT_EQ(got.decoding, ImageReader::Decoding::kScaled);
  EXPECT_TRUE(got.exif_transpose);
  EXPECT_TRUE(got.keep_unreadable);
  EXPECT_FALSE(got.whole);
  EXPECT_EQ(got.seed, 6U);
  EXPECT_EQ(got.validation_fraction, 0.75);
  EXPECT_EQ(got.cache_bytes, 8);
  EXPECT_EQ(got.local_processes, 3);

  // Other loaders decode images on their own device.
  settings.of_recipe.cache_bytes.reset();
  settings.loader = LoaderEngineKind::kCuda;
  load_recipe_data(settings, {});
  EXPECT_EQ(got.cache_bytes, 0);

  settings.data = (folder / "none").string();
  EXPECT_EQ(testing_support::message_of<ConfigError>([&] { load_recipe_data(settings, {}); }),
            "train: --data " + (folder / "none").string() +
                " does not exist; give a folder with a subfolder of images for each class, a file "
                "made by `lockstep data pack`, or the folder of a known data set's files");
}

TEST(TrainData, SpeaksInTheFirstRankOnly) {
  TrainSettings settings = settings_with([](const RecipeDataOptions& options) {
    options.message("other data; set DataRequest::directory");
  });
  const auto said = [&] {
    testing::internal::CaptureStderr();
    load_recipe_data(settings, {});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(), testing::StrEq("note: other data; set --data\n"));
  settings.worker = WorkerEnvironment{};
  EXPECT_THAT(said(), testing::StartsWith("note: other data")) << "rank 0 of a launcher";
  settings.quiet = true;
  EXPECT_EQ(said(), "");
  settings.quiet = false;
  settings.worker->rank = 1;
  EXPECT_EQ(said(), "");
}

// A rank that waits for another's download can end it.
TEST(TrainData, GivesUpADownloadWhenItIsTold) {
  std::stop_source source;
  std::vector<std::string> files;
  TrainSettings settings = settings_with([&](const RecipeDataOptions& options) {
    for (const char* file : {"images", "labels"}) {
      options.progress(file, 1, 2);
      files.emplace_back(file);
      source.request_stop();
    }
  });
  settings.quiet = true;
  EXPECT_EQ(testing_support::message_of<DataError>(
                [&] { load_recipe_data(settings, {.stop = source.get_token()}); }),
            "labels: the download was given up");
  EXPECT_THAT(files, testing::ElementsAre("images"));
}

}  // namespace
}  // namespace lockstep::cli
