// How the recipes classify and autoencoder load and split any folder of images.
#include <lockstep/recipes/folder_split.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <lockstep/core/error.h>
#include <lockstep/core/strings.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/open_images.h>
#include <lockstep/data/datasets/random_split.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/recipes/recipe.h>
#include <tests/support/colour_folder.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class FolderSplit : public ::testing::Test {
 protected:
  recipes::RecipeData load(const std::string& recipe, recipes::RecipeDataOptions options = {}) {
    if (!options.directory) options.directory = (directory_ / "photos").string();
    options.message = [this](const std::string& text) { messages_.push_back(text); };
    return recipes::find_recipe(recipe).load_data(options);
  }

  // The red values of the images in their order, which identify the images.
  static std::vector<int> reds_of(const ImageDataset& dataset) {
    std::vector<int> reds;
    ImageReader reader;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      dataset.read(i, reader);
      reds.push_back(reader.pixels({0, 0, 1, 1}).pixels[0]);
    }
    return reds;
  }

  TemporaryDirectory directory_;
  std::vector<std::string> messages_;
};

TEST_F(FolderSplit, BySeedIsDisjointCompleteAndRepeatsItself) {
  write_colours(directory_, "photos", 20, 2);
  for (const char* recipe : {"classify", "autoencoder"}) {
    const recipes::RecipeData data = load(recipe, {.seed = 3});
    EXPECT_EQ(data.description, "photos");
    const std::vector<int> train = reds_of(data.train);
    const std::vector<int> validation = reds_of(data.load_test());
    EXPECT_EQ(train.size(), 16U);
    EXPECT_EQ(validation.size(), 4U);
    std::set<int> all(train.begin(), train.end());
    all.insert(validation.begin(), validation.end());
    EXPECT_EQ(all.size(), 20U) << "each image once";

    const recipes::RecipeData again = load(recipe, {.seed = 3});
    EXPECT_EQ(reds_of(again.train), train);
    EXPECT_EQ(reds_of(again.load_test()), validation);
    const recipes::RecipeData other = load(recipe, {.seed = 4});
    EXPECT_NE(reds_of(other.load_test()), validation);

    EXPECT_TRUE(data.is_split_at_random);
    EXPECT_NE(data.fingerprint, "");
    EXPECT_EQ(again.fingerprint, data.fingerprint);
    EXPECT_NE(other.fingerprint, data.fingerprint);
    EXPECT_NE(load(recipe, {.seed = 3, .validation_fraction = 0.3}).fingerprint, data.fingerprint);
  }
  EXPECT_EQ(
      messages_[0],
      "split by seed 3: 16 images to train on, 4 to validate on, in proportion to the classes");
}

std::vector<std::int64_t> images_by_class(const ImageDataset& dataset) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(dataset.num_classes()));
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    ++counts[static_cast<std::size_t>(dataset.label(i))];
  }
  return counts;
}

// Classes of 40, 10, 3 and 1 images. The split reads names only.
TEST_F(FolderSplit, BySeedIsInProportionToTheClasses) {
  const std::pair<const char*, int> classes[] = {{"a", 40}, {"b", 10}, {"c", 3}, {"d", 1}};
  for (const auto& [name, count] : classes) {
    for (int i = 0; i < count; ++i)
      directory_.write(lockstep::str("photos/", name, '/', i, ".png"), "");
  }
  struct Case {
    double fraction;
    std::vector<std::int64_t> validated;
  };
  // The shares of 11 images are 8.15, 2.04, 0.61 and 0.20; those of 27 are 20, 5, 1.5 and 0.5.
  const Case cases[] = {{0.2, {8, 2, 1, 0}}, {0.5, {20, 5, 2, 0}}, {0.92, {39, 9, 2, 0}}};
  for (const Case& c : cases) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const recipes::RecipeData data =
          load("classify", {.seed = seed, .validation_fraction = c.fraction});
      EXPECT_EQ(images_by_class(data.load_test()), c.validated) << c.fraction;
      std::vector<std::int64_t> all = images_by_class(data.train);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += c.validated[i];
      EXPECT_THAT(all, ElementsAre(40, 10, 3, 1));
    }
  }
  EXPECT_EQ(messages_[1],
            "no image to validate on is of 'd': too few images; give a larger validation fraction, "
            "or folders train and val");
  messages_.clear();
  EXPECT_EQ(load("classify", {.validation_fraction = 0.95}).load_test().size(), 51);
  EXPECT_EQ(messages_[0],
            "split by seed 0: 3 images to train on, 51 to validate on; not by class: fewer images "
            "to train on than classes");
}

// Seven classes of one image each have none to validate on. Classes with equal remainders get the
// image in the order of their names.
TEST_F(FolderSplit, NamesAFewClassesWithoutValidation) {
  for (int i = 0; i < 10; ++i) directory_.write(lockstep::str("photos/a/", i, ".png"), "");
  for (const char* name : {"b", "c", "d", "e", "f", "g", "h"}) {
    directory_.write(lockstep::str("photos/", name, "/0.png"), "");
  }
  EXPECT_EQ(load("classify", {.validation_fraction = 0.1}).load_test().size(), 2);
  EXPECT_EQ(messages_.at(1),
            "no image to validate on is of 'b', 'c', 'd', 'e', 'f' and 2 other classes: too few "
            "images; give a larger validation fraction, or folders train and val");
  // Six such classes, and then five.
  for (const auto& [name, classes] : {std::pair("h", "'b', 'c', 'd', 'e', 'f' and 1 other class: "),
                                      std::pair("g", "'b', 'c', 'd', 'e', 'f': ")}) {
    std::filesystem::remove_all(directory_ / "photos" / name);
    messages_.clear();
    EXPECT_EQ(load("classify", {.validation_fraction = 0.1}).load_test().size(), 2);
    EXPECT_THAT(messages_.at(1),
                HasSubstr(lockstep::str("no image to validate on is of ", classes, "too few")));
  }
  std::filesystem::remove_all(directory_ / "photos");
  for (int i = 0; i < 12; ++i) {
    directory_.write(lockstep::str("photos/", i % 3, '/', i, ".png"), "");
  }
  messages_.clear();
  const recipes::RecipeData even = load("classify", {.validation_fraction = 5.0 / 12});
  EXPECT_THAT(images_by_class(even.load_test()), ElementsAre(2, 2, 1));
  EXPECT_THAT(messages_, Not(Contains(HasSubstr("no image to validate")))) << "each class has one";
}

// As earlier versions split it, so that their runs can be resumed.
TEST_F(FolderSplit, OfOneClassIsThatOfRandomSplit) {
  write_colours(directory_, "photos", 10, 1);
  const recipes::RecipeData data =
      load("autoencoder", {.seed = 5, .validation_fraction = 0.3, .cache_bytes = 0});
  const std::vector<ImageDataset> parts = random_split(load_image_folder(directory_ / "photos"),
                                                       std::vector<std::int64_t>{7, 3}, /*seed=*/5);
  EXPECT_EQ(reds_of(data.train), reds_of(parts[0]));
  EXPECT_EQ(reds_of(data.load_test()), reds_of(parts[1]));
}

// What identifies a split: a checkpoint of an earlier version holds the same text.
std::string fingerprint_of(const std::vector<std::uint64_t>& parts, const std::string& split) {
  formats::Checksum sum;
  sum.add(std::as_bytes(std::span(parts)));
  sum.add(std::as_bytes(std::span(split)));
  return lockstep::str(sum.value());
}

TEST_F(FolderSplit, HasTheFingerprintsOfEarlierVersions) {
  write_colours(directory_, "photos", 20, 2);
  write_colours(directory_, "one", 10, 1);
  const auto names_in = [&](const std::string& folder) {
    return data::open_images(directory_ / folder).fingerprint();
  };
  EXPECT_EQ(load("classify", {.seed = 5, .validation_fraction = 0.3}).fingerprint,
            fingerprint_of({names_in("photos")}, "by class 5 6"));
  const std::string one = (directory_ / "one").string();
  EXPECT_EQ(load("autoencoder", {.directory = one, .seed = 7, .cache_bytes = 0}).fingerprint,
            fingerprint_of({names_in("one")}, "7 2"))
      << "by class is at random where there is one class";
  write_colours(directory_, "parts/train", 6, 2);
  write_colours(directory_, "parts/valid", 4, 2, /*first=*/10);
  const std::string parts = (directory_ / "parts").string();
  EXPECT_EQ(load("classify", {.directory = parts, .seed = 7}).fingerprint,
            fingerprint_of({names_in("parts/train"), names_in("parts/valid")}, "valid"));
}

// With fewer images to train on than classes, no split is by class.
TEST_F(FolderSplit, OfManyClassesIsThatOfRandomSplit) {
  write_colours(directory_, "photos", 6, 3);
  const recipes::RecipeData data = load("classify", {.seed = 2, .validation_fraction = 0.6});
  EXPECT_EQ(messages_.at(0),
            "split by seed 2: 2 images to train on, 4 to validate on; not by class: fewer images "
            "to train on than classes");
  const ImageDataset all = load_image_folder(directory_ / "photos");
  const std::vector<ImageDataset> parts =
      random_split(all, std::vector<std::int64_t>{2, 4}, /*seed=*/2);
  EXPECT_EQ(reds_of(data.train), reds_of(parts[0]));
  EXPECT_EQ(reds_of(data.load_test()), reds_of(parts[1]));
  EXPECT_EQ(data.fingerprint, fingerprint_of({all.fingerprint()}, "2 4"));
  EXPECT_TRUE(data.is_split_at_random);
  EXPECT_EQ(messages_.size(), 3U) << "only few images in each part";
}

// The threads of a parallel operation would be missing in the ranks that the launcher forks.
TEST_F(FolderSplit, BySeedIsDrawnOnOneThread) {
  for (int i = 0; i < 10; ++i) directory_.write(lockstep::str("photos/a/", i, ".png"), "");
  directory_.write("photos/b/0.png", "");
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  std::vector<int> threads;
  recipes::find_recipe("classify")
      .load_data(
          {.directory = (directory_ / "photos").string(), .message = [&](const std::string& text) {
             if (text.starts_with("no image to validate on is of 'b'")) {
               threads.push_back(at::get_num_threads());
             }
           }});
  EXPECT_THAT(threads, ElementsAre(1));
  EXPECT_EQ(at::get_num_threads(), 3) << "the number is restored";
  at::set_num_threads(before);
}

// Photographs are turned in both parts, however the folder is split, and the description tells a
// resumed run.
TEST_F(FolderSplit, TurnsPhotographsOnlyWhenItIsTold) {
  write_colours(directory_, "whole", 10, 2);
  write_colours(directory_, "parts/train", 6, 2);
  write_colours(directory_, "parts/val", 4, 2, /*first=*/10);
  for (const std::string folder : {"whole", "parts"}) {
    for (const bool turned : {false, true}) {
      const recipes::RecipeData data =
          load("classify", {.directory = (directory_ / folder).string(), .exif_transpose = turned});
      EXPECT_EQ(data.description, folder + (turned ? ", turned by EXIF" : ""));
      EXPECT_EQ(data.train.is_file(0), !turned) << folder;
      EXPECT_EQ(data.load_test().is_file(0), !turned) << folder;
    }
  }
  const recipes::RecipeData split =
      recipes::find_recipe("resnet50-split")
          .load_data({.directory = (directory_ / "parts").string(), .exif_transpose = true});
  EXPECT_EQ(split.description, "parts, turned by EXIF");
  EXPECT_FALSE(split.train.is_file(0) || split.load_test().is_file(0));
}

TEST_F(FolderSplit, TakesTheShareThatItIsTold) {
  write_colours(directory_, "photos", 20, 2);
  EXPECT_EQ(load("classify", {.validation_fraction = 0.55}).load_test().size(), 11);
  const auto refusal = [&](double fraction) {
    return message_of<ConfigError>([&] { load("classify", {.validation_fraction = fraction}); });
  };
  EXPECT_EQ(refusal(0.01),
            "classify: a validation fraction of 0.01 of 20 images is 0 images; each part needs at "
            "least 1 image");
  EXPECT_THAT(refusal(0.99), HasSubstr("is 20 images"));
  EXPECT_THAT(refusal(1), HasSubstr("is 20 images"));
  EXPECT_THAT(refusal(0), HasSubstr("a validation fraction of 0 of 20 images is 0 images"));
  EXPECT_EQ(refusal(1.5), "classify: the validation fraction must be from 0 to 1, got 1.5");
  EXPECT_EQ(refusal(-0.5), "classify: the validation fraction must be from 0 to 1, got -0.5");
  EXPECT_EQ(load("classify", {.validation_fraction = 0.025}).load_test().size(), 1);
  EXPECT_EQ(load("classify", {.validation_fraction = 0.95}).train.size(), 1);
}

TEST_F(FolderSplit, ByFoldersIsTheFolders) {
  for (const std::string validation : {"val", "valid", "validation", "test"}) {
    std::filesystem::remove_all(directory_ / "photos");
    write_colours(directory_, "photos/train", 6, 2);
    write_colours(directory_, "photos/" + validation, 4, 2, /*first=*/10);
    for (const char* recipe : {"classify", "autoencoder"}) {
      const recipes::RecipeData data = load(recipe);
      EXPECT_THAT(reds_of(data.train),
                  ElementsAre(red_of(0), red_of(2), red_of(4), red_of(1), red_of(3), red_of(5)));
      EXPECT_THAT(reds_of(data.load_test()),
                  ElementsAre(red_of(10), red_of(12), red_of(11), red_of(13)));
      EXPECT_EQ(data.load_test().num_classes(), 2);
      EXPECT_FALSE(data.is_split_at_random);
      EXPECT_NE(data.fingerprint, "");
    }
    EXPECT_THAT(message_of<ConfigError>([&] { load("classify", {.validation_fraction = 0.5}); }),
                HasSubstr("has the folders train and " + validation + ", which are the split"));
  }
  write_colours(directory_, "photos/train", 1, 3, /*first=*/2);
  EXPECT_THAT(message_of<DataError>([&] { load("classify"); }),
              HasSubstr("photos: train has the class 'class2', which test lacks; give both a"));
  std::filesystem::remove_all(directory_ / "photos/train/class0");
  std::filesystem::remove_all(directory_ / "photos/train/class2");
  EXPECT_THAT(message_of<DataError>([&] { load("classify"); }),
              HasSubstr("photos: test has the class 'class0', which train lacks"));
}

// A resumed run must validate on the same images as before: those of a folder with the same name,
// too.
TEST_F(FolderSplit, ByFoldersIsIdentifiedByTheirNamesAndImages) {
  write_colours(directory_, "photos/train", 6, 2);
  write_colours(directory_, "photos/val", 4, 2, /*first=*/10);
  const std::string before = load("classify").fingerprint;
  EXPECT_EQ(load("classify", {.seed = 7, .cache_bytes = 0}).fingerprint, before);
  std::filesystem::rename(directory_ / "photos/val", directory_ / "photos/test");
  const std::string renamed = load("classify").fingerprint;
  EXPECT_NE(renamed, before);
  std::filesystem::rename(directory_ / "photos/test", directory_ / "photos/val");
  EXPECT_EQ(load("classify").fingerprint, before);
  write_colours(directory_, "photos/val", 1, 2, /*first=*/14);
  const std::string more = load("classify").fingerprint;
  EXPECT_NE(more, before);
  std::filesystem::remove(directory_ / "photos/val/class0/014.png");
  write_colours(directory_, "photos/train", 1, 2, /*first=*/6);
  EXPECT_NE(load("classify").fingerprint, before);
}

TEST_F(FolderSplit, NeedsNobodyToTell) {
  write_colours(directory_, "photos", 20, 2);
  const recipes::RecipeData data =
      recipes::find_recipe("classify")
          .load_data({.directory = (directory_ / "photos").string(), .cache_bytes = 2'000'000});
  EXPECT_EQ(data.train.size(), 16);
}

TEST_F(FolderSplit, SaysWhichFolderItLeavesOut) {
  write_colours(directory_, "photos/train", 6, 2);
  write_colours(directory_, "photos/val", 2, 2, /*first=*/10);
  write_colours(directory_, "photos/test", 4, 2, /*first=*/20);
  EXPECT_THAT(reds_of(load("classify").load_test()), ElementsAre(red_of(10), red_of(11)));
  EXPECT_THAT(messages_, Contains(HasSubstr("photos: the images in val are validated on, those "
                                            "in test are not used")));
  write_colours(directory_, "photos/validation", 2, 2, /*first=*/30);
  messages_.clear();
  load("classify", {.directory = (directory_ / "photos/").string()});
  const std::string begin =
      (directory_ / "photos/").string() + ": the images in val are validated on, those in ";
  EXPECT_THAT(messages_, ElementsAre(begin + "validation are not used", begin + "test are not used",
                                     HasSubstr("only 6 images"), HasSubstr("only 2 images")));
}

// The description is the folder's own name, however its path is written.
TEST_F(FolderSplit, IsNamedAfterTheFolder) {
  write_colours(directory_, "photos", 10, 2);
  for (const char* end : {"", "/", "/../photos"}) {
    const std::string path = (directory_ / "photos").string() + end;
    EXPECT_EQ(load("classify", {.directory = path}).description, "photos") << path;
    const recipes::RecipeData whole = load("classify", {.directory = path, .whole = true});
    EXPECT_EQ(whole.description, "photos") << path;
    EXPECT_EQ(whole.train.size(), 10);
    EXPECT_EQ(whole.load_test().size(), 10);
    EXPECT_EQ(whole.fingerprint, "") << "nothing is split";
    EXPECT_FALSE(whole.is_split_at_random);
  }
}

TEST_F(FolderSplit, SaysThatAPartHasFewImages) {
  const std::string few_to_train =
      "only 3 images to train on, too few to train a model that generalises";
  const std::string few_to_validate = "only 1 image to validate on, too few to judge the model";
  write_colours(directory_, "photos", 4, 1);
  load("autoencoder", {.cache_bytes = 0});
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("split by seed"), few_to_train, few_to_validate));
  messages_.clear();
  write_colours(directory_, "parts/train", 3, 1);
  write_colours(directory_, "parts/val", 1, 1, /*first=*/10);
  for (const char* recipe : {"autoencoder", "resnet50-split"}) {
    messages_.clear();
    load(recipe, {.directory = (directory_ / "parts").string(), .cache_bytes = 0});
    EXPECT_THAT(messages_, ElementsAre(few_to_train, few_to_validate)) << recipe;
  }
  // Ten images are enough, nine are few.
  for (const int validated : {9, 10}) {
    std::filesystem::remove_all(directory_ / "parts");
    write_colours(directory_, "parts/train", 10, 1);
    write_colours(directory_, "parts/val", validated, 1, /*first=*/10);
    messages_.clear();
    load("autoencoder", {.directory = (directory_ / "parts").string(), .cache_bytes = 0});
    EXPECT_EQ(messages_.size(), validated < 10 ? 1U : 0U);
  }
}

TEST_F(FolderSplit, RefusesHalfOfASplit) {
  write_colours(directory_, "photos/train", 6, 2);
  EXPECT_THAT(message_of<ConfigError>([&] { load("autoencoder"); }),
              AllOf(HasSubstr("has the folder train, which has folders of its own, but none of "
                              "val, valid, validation, test"),
                    HasSubstr("give --data " + (directory_ / "photos/train").string())));
  // A class may have the name of a split.
  std::filesystem::remove_all(directory_ / "photos");
  write_colours(directory_, "photos", 10, 2);
  std::filesystem::rename(directory_ / "photos/class1", directory_ / "photos/train");
  EXPECT_EQ(load("classify").train.class_names(), (std::vector<std::string>{"class0", "train"}));
}

TEST_F(FolderSplit, SaysThatTheCachesNeedMoreThanThereIs) {
  write_colours(directory_, "photos", 20, 2);
  constexpr std::int64_t kHundredGigabytes = 100'000'000'000;
  load("classify", {.cache_bytes = kHundredGigabytes, .local_processes = 1000});
  EXPECT_THAT(messages_, Contains(AllOf(HasSubstr("the cache may grow to 100"),
                                        HasSubstr("in each of the host's processes"),
                                        HasSubstr("give a smaller --cache"))));
  messages_.clear();
  load("classify", {.cache_bytes = 100 * kHundredGigabytes});
  EXPECT_THAT(messages_, Contains(AllOf(HasSubstr("the cache may grow to 10"),
                                        HasSubstr(", but the host has "))));
  messages_.clear();
  load("autoencoder", {.cache_bytes = kHundredGigabytes});
  EXPECT_THAT(messages_, Not(Contains(HasSubstr("give a smaller")))) << "20 images are 1.5 MB";
}

TEST_F(FolderSplit, KeepsDecodedImages) {
  write_colours(directory_, "photos", 20, 2);
  const recipes::RecipeData data = load("autoencoder");
  EXPECT_THAT(messages_, ElementsAre(AllOf(HasSubstr("all 20 images stay in memory"),
                                           HasSubstr("1.5 MB at 160x160 pixels")),
                                     HasSubstr("split by seed 0"), HasSubstr("only 4 images")));
  const std::vector<int> train = reds_of(data.train);
  const std::vector<int> validation = reds_of(data.load_test());
  std::filesystem::remove_all(directory_ / "photos");
  EXPECT_EQ(reds_of(data.train), train);
  EXPECT_EQ(reds_of(data.load_test()), validation);
}

TEST_F(FolderSplit, KeepsAsManyAsItIsTold) {
  write_colours(directory_, "photos", 20, 2);
  constexpr std::int64_t kImageBytes = 3 * 160 * 160;
  struct Case {
    std::int64_t cache_bytes;
    const char* images;
    const char* bytes;
  };
  const Case cases[] = {
      {kImageBytes, "1 of 20 ", "76.8 kB"},        {5 * kImageBytes - 1, "4 of 20 ", "307 kB"},
      {5 * kImageBytes, "5 of 20 ", "384 kB"},     {5 * kImageBytes + 1, "5 of 20 ", "384 kB"},
      {6 * kImageBytes - 1, "5 of 20 ", "384 kB"}, {20 * kImageBytes - 1, "19 of 20 ", "1.5 MB"},
      {20 * kImageBytes, "all 20 ", "1.5 MB"},     {21 * kImageBytes - 1, "all 20 ", "1.5 MB"},
      {22 * kImageBytes, "all 20 ", "1.5 MB"}};
  for (const Case& each : cases) {
    messages_.clear();
    load("autoencoder", {.cache_bytes = each.cache_bytes});
    const bool is_all = each.cache_bytes >= 20 * kImageBytes;
    EXPECT_EQ(messages_.at(0),
              lockstep::str(each.images, "images stay in memory once they are decoded, ",
                            each.bytes, " at 160x160 pixels",
                            is_all ? "" : "; the others are decoded in every epoch"))
        << each.cache_bytes;
  }
  messages_.clear();
  const recipes::RecipeData data = load("autoencoder", {.cache_bytes = 0});
  EXPECT_THAT(messages_,
              ElementsAre(HasSubstr("split by seed"), HasSubstr("only 4 images to validate on")));
  reds_of(data.train);
  std::filesystem::remove_all(directory_ / "photos");
  EXPECT_THROW(reds_of(data.train), DataError);

  write_colours(directory_, "photos", 20, 2);
  messages_.clear();
  load("classify", {.cache_bytes = 2'000'000});
  EXPECT_THAT(messages_, ElementsAre("decoded images stay in memory, in up to 2.0 MB",
                                     HasSubstr("split by seed"), HasSubstr("only 4 images")));
}

// The default cache is a quarter of the memory that is left, and the host's processes share it.
TEST_F(FolderSplit, SharesTheDefaultCacheAmongTheProcesses) {
  write_colours(directory_, "photos", 20, 2);
  load("autoencoder", {.local_processes = 0});
  EXPECT_THAT(messages_, Contains(HasSubstr("all 20 images stay in memory")));
  messages_.clear();
  load("autoencoder", {.local_processes = 2'000'000'000});
  EXPECT_THAT(messages_, Not(Contains(HasSubstr("all 20 images stay in memory"))));
  messages_.clear();
  load("classify");
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("split by seed"), HasSubstr("only 4 images")))
      << "has no cache by default";
}

TEST_F(FolderSplit, SaysInOneLineWhatIsWrong) {
  for (const std::string recipe : {"classify", "autoencoder"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { recipes::find_recipe(recipe).load_data({}); }),
                HasSubstr(recipe + ": give --data DIR"));
    EXPECT_THAT(message_of<ConfigError>([&] { load(recipe); }),
                HasSubstr("photos does not exist; give a folder with a subfolder of images"));
    std::filesystem::create_directory(directory_ / "photos");
    EXPECT_THAT(message_of<DataError>([&] { load(recipe); }), HasSubstr("has no subfolders"));
    std::filesystem::create_directory(directory_ / "photos" / "cat");
    EXPECT_THAT(message_of<DataError>([&] { load(recipe); }),
                HasSubstr("cat: holds no .jpg, .jpeg, .jpe, .jfif or .png file"));
    std::filesystem::remove_all(directory_ / "photos");
  }
  EXPECT_THAT(message_of<ConfigError>([&] { load("resnet50-split"); }),
              HasSubstr("photos does not exist; give a folder with a subfolder of images"));
  write_colours(directory_, "photos", 5, 1);
  EXPECT_THAT(message_of<DataError>([&] { load("classify"); }),
              HasSubstr("has one class, 'class0'; a classifier needs at least two"));
  EXPECT_EQ(load("autoencoder").train.size(), 4) << "which needs no classes";
  std::filesystem::remove_all(directory_ / "photos");
  write_colours(directory_, "photos", 1, 1);
  EXPECT_EQ(message_of<ConfigError>([&] { load("autoencoder"); }),
            "autoencoder: a validation fraction of 0.2 of 1 image is 0 images; each part needs at "
            "least 1 image");
}

TEST(RecipeChoices, MakeTheRecipe) {
  const recipes::Recipe autoencoder = recipes::chosen_recipe("autoencoder", {.image_size = 80});
  EXPECT_EQ(autoencoder.input, (ImageShape{3, 80, 80}));
  const recipes::Recipe classify =
      recipes::chosen_recipe("classify", {.model = "resnet34", .image_size = 64});
  EXPECT_EQ(classify.input, (ImageShape{3, 64, 64}));
  EXPECT_EQ(classify.max_stages, 16);
  using Choices = std::map<std::string, std::string>;
  EXPECT_EQ(classify.choices, (Choices{{"model", "resnet34"}, {"image_size", "64"}}));
  const recipes::RecipeChoices read = recipes::choices_from(classify.choices);
  EXPECT_EQ(read.model, "resnet34");
  EXPECT_EQ(read.image_size, 64);
  EXPECT_EQ(recipes::chosen_recipe("mnist", {}).name, "mnist");
  // The parameter counts of torchvision's nets with six outputs: sum(p.numel() for p in
  // net.parameters()).
  const std::map<std::string, std::int64_t> parameters = {
      {"resnet18", 11'179'590}, {"resnet34", 21'287'750}, {"resnet50", 23'520'326}};
  for (const auto& [name, expected] : parameters) {
    const auto task =
        recipes::chosen_recipe("classify", {.model = name}).make_task({.num_classes = 6});
    std::int64_t count = 0;
    for (const torch::Tensor& each : task->module().parameters()) count += each.numel();
    EXPECT_EQ(count, expected) << name;
  }
}

TEST(RecipeChoices, ThatARecipeDoesNotHaveAreRefused) {
  const auto refusal = [](const std::string& name, const recipes::RecipeChoices& choices) {
    return message_of<ConfigError>([&] { recipes::chosen_recipe(name, choices); });
  };
  EXPECT_THAT(refusal("autoencoder", {.image_size = 170}),
              HasSubstr("must be a multiple of 20, which the net pools to one pixel, got 170; use "
                        "160 or 180"));
  EXPECT_EQ(refusal("autoencoder", {.image_size = 0}),
            "recipe autoencoder: the image size must be from 20 to 4000, got 0");
  EXPECT_THAT(refusal("autoencoder", {.image_size = 4020}), HasSubstr("20 to 4000, got 4020"));
  EXPECT_THAT(refusal("autoencoder", {.model = "resnet18"}), HasSubstr("has one model"));
  EXPECT_THAT(refusal("mnist", {.image_size = 64}), HasSubstr("takes images of 28x28 pixels only"));
  EXPECT_THAT(refusal("classify", {.model = "resnet19"}),
              HasSubstr("the model must be one of resnet18, resnet34, resnet50, got 'resnet19'"));
  EXPECT_EQ(refusal("classify", {.image_size = 63}),
            "recipe classify: the image size must be from 64 to 4096, got 63");
  EXPECT_THAT(refusal("classify", {.image_size = 4097}), HasSubstr("64 to 4096, got 4097"));
  for (const std::string text : {"12x", "", " 12", "99999999999999999999", "1e2"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { recipes::choices_from({{"image_size", text}}); }),
                HasSubstr("must be a whole number, got '" + text + "'"));
  }
  EXPECT_THAT(refusal("minst", {}),
              AllOf(HasSubstr("'minst'"),
                    HasSubstr("mnist, cifar10, classify, autoencoder, program, resnet50-split")));
  const recipes::RecipeChoices none = recipes::choices_from({{"other", "1"}});
  EXPECT_FALSE(none.model || none.image_size);
  EXPECT_THAT(refusal("mnist", {.model = "resnet18", .image_size = 64}),
              HasSubstr("recipe mnist has one model, which it trains; got 'resnet18'"));
}

}  // namespace
}  // namespace lockstep::testing_support
