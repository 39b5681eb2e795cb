// How the recipes load packs, and split them as they split folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/packed_images.h>
#include <lockstep/data/preparation/pack_images.h>
#include <lockstep/recipes/folder_split.h>
#include <lockstep/recipes/recipe.h>
#include <tests/support/colour_folder.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// `count` images of one value each, with labels that take turns.
ImageDataset plain_images(const ImageShape& shape, std::int64_t count, std::int64_t classes,
                          std::vector<std::string> names = {}) {
  struct Memory {
    std::vector<std::uint8_t> pixels, labels;
  };
  const auto memory = std::make_shared<Memory>();
  for (std::int64_t i = 0; i < count; ++i) {
    memory->pixels.insert(memory->pixels.end(), static_cast<std::size_t>(shape.elements()),
                          static_cast<std::uint8_t>(i));
    memory->labels.push_back(static_cast<std::uint8_t>(i % classes));
  }
  return ImageDataset("plain", shape, classes,
                      {{.images = memory->pixels.data(),
                        .image_stride = shape.elements(),
                        .labels = memory->labels.data(),
                        .label_stride = 1,
                        .count = count,
                        .keep_alive = memory}},
                      std::move(names));
}

class PackSplit : public ::testing::Test {
 protected:
  recipes::RecipeData load(const std::string& recipe, const std::string& name,
                           recipes::RecipeDataOptions options = {}) {
    options.directory = (directory_ / name).string();
    options.message = [this](const std::string& text) { messages_.push_back(text); };
    return recipes::find_recipe(recipe).load_data(options);
  }
  void pack_folder(const std::string& folder, const std::string& name,
                   const PackImagesOptions& options = {}) const {
    pack_images(load_image_folder(directory_ / folder), directory_ / name, options);
  }
  std::string refusal(const std::string& recipe, const std::string& name) {
    return message_of<DataError>([&] { load(recipe, name); });
  }

  // The first value and the label of each image.
  static std::vector<std::pair<int, std::int64_t>> images_of(const ImageDataset& dataset) {
    std::vector<std::pair<int, std::int64_t>> images;
    ImageReader reader;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      dataset.read(i, reader);
      images.emplace_back(reader.pixels({0, 0, 1, 1}).pixels[0], dataset.label(i));
    }
    return images;
  }

  TemporaryDirectory directory_;
  std::vector<std::string> messages_;
};

TEST_F(PackSplit, IsThatOfTheFolder) {
  write_colours(directory_, "photos", 20, 2);
  for (const bool keep_files : {false, true}) {
    pack_folder("photos", "photos.pack", {.keep_files = keep_files});
    for (const char* recipe : {"classify", "autoencoder"}) {
      messages_.clear();
      const recipes::RecipeData folder =
          load(recipe, "photos", {.seed = 3, .validation_fraction = 0.3, .cache_bytes = 0});
      const std::vector<std::string> expected = std::exchange(messages_, {});
      const recipes::RecipeData pack =
          load(recipe, "photos.pack", {.seed = 3, .validation_fraction = 0.3, .cache_bytes = 0});
      EXPECT_EQ(messages_, expected);
      EXPECT_EQ(images_of(pack.train), images_of(folder.train)) << recipe << keep_files;
      EXPECT_EQ(images_of(pack.load_test()), images_of(folder.load_test()));
      EXPECT_EQ(pack.train.class_names(), folder.train.class_names());
      EXPECT_EQ(pack.description, "photos.pack");
      EXPECT_TRUE(pack.is_split_at_random);
      const auto fingerprint = [&](std::uint64_t seed) {
        return load(recipe, "photos.pack", {.seed = seed, .validation_fraction = 0.3}).fingerprint;
      };
      EXPECT_EQ(fingerprint(3), pack.fingerprint);
      EXPECT_NE(fingerprint(4), pack.fingerprint);
      write_colours(directory_, "others", 20, 2, /*first=*/1);
      pack_folder("others", "photos.pack", {.keep_files = keep_files});
      EXPECT_NE(fingerprint(3), pack.fingerprint) << "a replaced pack";
      pack_folder("photos", "photos.pack", {.keep_files = keep_files});
      EXPECT_EQ(fingerprint(3), pack.fingerprint) << "the same images, packed again";
    }
  }
}

TEST_F(PackSplit, ByPacksIsThePacks) {
  write_colours(directory_, "source/train", 6, 2);
  write_colours(directory_, "source/val", 4, 2, /*first=*/10);
  std::filesystem::create_directory(directory_ / "packs");
  // The parts have different sizes, and share a cache.
  pack_folder("source/train", "packs/train.pack", {.resize = Resize{20}});
  for (const std::string name : {"val", "valid", "validation", "test"}) {
    pack_folder("source/val", "packs/" + name + ".pack", {.resize = Resize{24}});
    for (const char* recipe : {"classify", "autoencoder", "resnet50-split"}) {
      for (const std::int64_t cache : {0, 1 << 20}) {
        const recipes::RecipeData data = load(recipe, "packs", {.cache_bytes = cache});
        EXPECT_EQ(images_of(data.train),
                  images_of(load_packed_images(directory_ / "packs/train.pack")));
        const std::string pack = name + ".pack";
        EXPECT_EQ(images_of(data.load_test()),
                  images_of(load_packed_images(directory_ / "packs" / pack)));
        EXPECT_EQ(data.description, "packs (train.pack, " + pack + ")");
        EXPECT_FALSE(data.is_split_at_random);
      }
    }
    const recipes::RecipeData all = load("classify", "packs", {.whole = true});
    EXPECT_EQ(all.train.size(), 10);
    EXPECT_EQ(all.load_test().size(), 10);
    EXPECT_THAT(
        message_of<ConfigError>([&] { load("classify", "packs", {.validation_fraction = 0.5}); }),
        HasSubstr("has the packs train.pack and " + name + ".pack, which are the split"));
    std::filesystem::remove(directory_ / ("packs/" + name + ".pack"));
  }
  EXPECT_TRUE(recipes::has_own_parts(directory_ / "source"));
  EXPECT_FALSE(recipes::has_own_parts(directory_ / "packs")) << "there is only one left";
  EXPECT_EQ(message_of<ConfigError>([&] { load("classify", "packs"); }),
            "classify: " + (directory_ / "packs").string() +
                " has train.pack, but none of val.pack, valid.pack, validation.pack, test.pack; "
                "add one, or give --data " +
                (directory_ / "packs/train.pack").string() + ", which is split at random");
}

// Packs beside the folders that they were made from change nothing.
TEST_F(PackSplit, FoldersGoBeforePacks) {
  write_colours(directory_, "photos/train", 6, 2);
  write_colours(directory_, "photos/val", 4, 2, /*first=*/10);
  write_colours(directory_, "whole", 10, 2);
  pack_folder("photos/train", "photos/train.pack");
  pack_folder("whole", "whole/train.pack");
  EXPECT_TRUE(load("classify", "photos").train.is_file(0));
  EXPECT_THAT(messages_, Not(Contains(HasSubstr("packs"))));
  pack_folder("photos/val", "photos/val.pack", {.resize = Resize{8}});
  const recipes::RecipeData data = load("classify", "photos");
  EXPECT_EQ(data.description, "photos");
  EXPECT_EQ(data.load_test().size(), 4);
  EXPECT_THAT(messages_, Contains(HasSubstr("photos: the images in the folders train and val are "
                                            "used, the packs beside them are not")));
  EXPECT_EQ(load("classify", "whole").train.size(), 8) << "a folder of classes with a pack in it";
  EXPECT_FALSE(recipes::holds_packs(directory_ / "photos"));
  EXPECT_TRUE(recipes::holds_packs(directory_ / "photos/train.pack"));
  EXPECT_FALSE(recipes::holds_packs(directory_ / "none"));
}

TEST_F(PackSplit, PartsMustHaveTheSameClasses) {
  std::filesystem::create_directory(directory_ / "packs");
  const auto pack = [&](const char* name, std::int64_t classes, std::vector<std::string> names) {
    pack_images(plain_images({3, 8, 8}, 6, classes, std::move(names)), directory_ / "packs" / name);
  };
  pack("train.pack", 2, {"cat", "dog"});
  pack("val.pack", 2, {"dog", "cat"});
  EXPECT_EQ(refusal("classify", "packs"),
            (directory_ / "packs").string() +
                ": train.pack and val.pack have their classes in different orders; pack both from "
                "the same classes");
  pack("val.pack", 3, {"cat", "dog", "fox"});
  EXPECT_THAT(refusal("classify", "packs"),
              HasSubstr("val.pack has the class 'fox', which train.pack lacks; give both a folder "
                        "for each class, and pack them again"));
  pack("val.pack", 3, {});
  EXPECT_THAT(refusal("classify", "packs"), HasSubstr("have different numbers of classes"));
  pack("val.pack", 2, {});
  EXPECT_EQ(load("classify", "packs").train.size(), 6);
}

// MNIST and CIFAR-10 as packs, and other packs of their size.
TEST_F(PackSplit, RecipesWithoutFoldersTakePacksOfTheirShape) {
  pack_images(plain_images({1, 28, 28}, 50, 10), directory_ / "mnist.pack");
  pack_images(plain_images({3, 32, 32}, 50, 10), directory_ / "cifar.pack");
  for (const auto& [recipe, name] : {std::pair("mnist", "mnist.pack"), {"cifar10", "cifar.pack"}}) {
    const recipes::RecipeData data = load(recipe, name);
    EXPECT_EQ(data.train.size(), 40) << recipe;
    EXPECT_EQ(data.train.shape(), recipes::find_recipe(recipe).input);
    EXPECT_EQ(data.load_test().size(), 10);
    EXPECT_EQ(load(recipe, name, {.validation_fraction = 0.4}).load_test().size(), 20);
    std::filesystem::create_directory(directory_ / recipe);
    std::filesystem::copy(directory_ / name, directory_ / recipe / "train.pack");
    std::filesystem::copy(directory_ / name, directory_ / recipe / "test.pack");
    EXPECT_EQ(load(recipe, recipe).load_test().size(), 50);
  }
  EXPECT_EQ(refusal("mnist", "cifar.pack"),
            "mnist: " + (directory_ / "cifar.pack").string() +
                " holds images of 3 channels, but the network takes 1; train classify or "
                "autoencoder on such images");
  // A folder shows grey files as RGB, and so do the recipes with packs.
  EXPECT_THAT(refusal("cifar10", "mnist.pack"),
              HasSubstr("mnist.pack holds images of 28x28 pixels, but the network takes 32x32 "
                        "pixels; pack them with `lockstep data pack --size 32x32`"));
  EXPECT_EQ(load("classify", "mnist.pack").train.shape(), (ImageShape{3, 28, 28}));
  pack_images(plain_images({1, 28, 28}, 9, 3), directory_ / "three.pack");
  EXPECT_THAT(refusal("mnist", "three.pack"),
              HasSubstr("has 3 classes, but the network has 10; train classify on other classes"));
  pack_images(plain_images({4, 32, 32}, 9, 3), directory_ / "four.pack");
  EXPECT_THAT(refusal("autoencoder", "four.pack"),
              HasSubstr("holds images of 4 channels, but the network takes 3; pack grey or RGB"));
  write_colours(directory_, "photos", 10, 10);
  pack_folder("photos", "sizes.pack", {.resize = Resize{20, true}});
  EXPECT_THAT(refusal("cifar10", "sizes.pack"), HasSubstr("images of 20x26 pixels, but"));
}

TEST_F(PackSplit, PixelsHaveNoCacheByDefault) {
  write_colours(directory_, "photos", 20, 2);
  pack_folder("photos", "files.pack", {.keep_files = true});
  pack_folder("photos", "pixels.pack");
  const std::string told = "all 20 images stay in memory once they are decoded";
  load("autoencoder", "files.pack");
  EXPECT_THAT(messages_, Contains(HasSubstr(told)));
  messages_.clear();
  load("autoencoder", "pixels.pack");
  EXPECT_THAT(messages_, Not(Contains(HasSubstr("memory"))));
  const recipes::RecipeData cached =
      load("autoencoder", "pixels.pack", {.cache_bytes = 20'000'000});
  EXPECT_THAT(messages_, Contains(HasSubstr(told))) << "on request";
  EXPECT_EQ(images_of(cached.train), images_of(load("autoencoder", "pixels.pack").train));
}

TEST_F(PackSplit, NeedsNoNamesOfClasses) {
  pack_images(plain_images({3, 8, 8}, 12, 1), directory_ / "one.pack");
  EXPECT_THAT(refusal("classify", "one.pack"),
              HasSubstr("one.pack has one class; a classifier needs at least two"));
  pack_images(plain_images({3, 8, 8}, 7, 6), directory_ / "few.pack");
  load("classify", "few.pack", {.validation_fraction = 0.15});
  EXPECT_THAT(messages_, Contains(HasSubstr("no image to validate on is of 1, 2, 3, 4, 5: too")));
}

TEST_F(PackSplit, SaysInOneLineWhatIsWrong) {
  directory_.write("photo.jpg", "no pack");
  for (const char* recipe : {"mnist", "cifar10", "classify", "autoencoder", "resnet50-split"}) {
    EXPECT_THAT(refusal(recipe, "photo.jpg"), HasSubstr("photo.jpg is not a packed image file"))
        << recipe;
  }
  write_colours(directory_, "photos", 10, 2);
  pack_folder("photos", "pixels.pack");
  EXPECT_THAT(
      message_of<ConfigError>([&] { load("classify", "pixels.pack", {.exif_transpose = true}); }),
      HasSubstr("pixels.pack holds decoded images without their EXIF orientation; remove"));
  pack_folder("photos", "files.pack", {.keep_files = true});
  const recipes::RecipeData turned = load("classify", "files.pack", {.exif_transpose = true});
  EXPECT_EQ(turned.description, "files.pack, turned by EXIF");
  EXPECT_FALSE(turned.train.is_file(0));
  EXPECT_TRUE(recipes::holds_packed_pixels(directory_ / "pixels.pack"));
  for (const char* other : {"files.pack", "photos", "photo.jpg", "none"}) {
    EXPECT_FALSE(recipes::holds_packed_pixels(directory_ / other)) << other;
  }
  std::filesystem::create_directory(directory_ / "packs");
  pack_folder("photos", "packs/train.pack");
  pack_folder("photos", "packs/val.pack");
  EXPECT_TRUE(recipes::holds_packed_pixels(directory_ / "packs"));
}

}  // namespace
}  // namespace lockstep::testing_support
