// The data and the operators of commands that show or time the loading of images.
#include <lockstep/cli/loader_data.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/augmentation_text.h>
#include <lockstep/data/preparation/pack_images.h>
#include <tests/support/colour_folder.h>
#include <tests/support/messages.h>
#include <tests/support/mnist_files.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::cli {
namespace {

using data::augmentation_text;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class LoaderDataTest : public ::testing::Test {
 protected:
  LoaderDataTest() {
    environment_.hide_data((folder_ / "cache").string());
    environment_.set("LOCKSTEP_DATA", folder_.path().string());
    testing_support::write_mnist(folder_, "mnist/train", 30);
    testing_support::write_mnist(folder_, "mnist/t10k", 20);
    testing_support::write_colours(folder_, "photos", 20, 2);
  }

  LoaderDataChoice choice_of(const std::string& source) const {
    return {.source = source, .source_option = "--dataset"};
  }
  std::string photos() const { return (folder_ / "photos").string(); }
  std::string refusal(const LoaderDataChoice& choice) const {
    return testing_support::message_of<ConfigError>([&] { open_loader_data("show", choice); });
  }
  // Expects these operators for `words` of --operators; nothing: the option is not given.
  void expect_operators(LoaderDataChoice choice, const std::optional<std::string>& words,
                        const std::string& name, const Augmentation& expected) const {
    choice.operators = words;
    const LoaderData found = open_loader_data("show", choice);
    EXPECT_EQ(found.operators, name);
    EXPECT_EQ(augmentation_text(found.augmentation), augmentation_text(expected)) << name;
  }

  testing_support::TemporaryDirectory folder_;
  testing_support::ScopedEnvironment environment_;
};

TEST_F(LoaderDataTest, HasTheOperatorsThatAreNamed) {
  const Normalize digits{.mean = {0.1307}, .std = {0.3081}};
  LoaderDataChoice choice = choice_of("mnist");
  choice.size = 16;
  expect_operators(choice, std::nullopt, "recipe", {digits});
  expect_operators(choice, "recipe", "recipe", {digits});
  expect_operators(choice, "normalize", "normalize", {digits});
  expect_operators(choice, "crop-flip", "crop-flip",
                   {Pad{4}, RandomCrop{28}, RandomHorizontalFlip{}, digits});
  expect_operators(choice, "crop-flip-cutout", "crop-flip-cutout",
                   {Pad{4}, RandomCrop{28}, RandomHorizontalFlip{}, digits, Cutout{7}});
  expect_operators(choice, "random-resized-crop", "random-resized-crop",
                   {RandomResizedCrop{16}, RandomHorizontalFlip{}, digits});
  choice.operators = "crop";
  EXPECT_THAT(refusal(choice),
              StartsWith("show: --operators must be one of recipe, normalize, crop-flip, "
                         "crop-flip-cutout, random-resized-crop, got 'crop'"));
}

// Images of a folder have each their own size, and ImageNet's mean and deviation.
TEST_F(LoaderDataTest, ResizesImagesOfVariousSizes) {
  const Normalize image_net{.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
  LoaderDataChoice choice = choice_of(photos());
  const Augmentation usual = {RandomResizedCrop{128}, RandomHorizontalFlip{}, image_net};
  expect_operators(choice, std::nullopt, "random-resized-crop", usual);
  expect_operators(choice, "random-resized-crop", "random-resized-crop", usual);
  for (const std::string name : {"normalize", "crop-flip", "crop-flip-cutout"}) {
    choice.operators = name;
    EXPECT_THAT(refusal(choice),
                StartsWith("show: --operators " + name + " needs images of one size, and those "));
    EXPECT_THAT(refusal(choice),
                testing::EndsWith(" have each their own; use random-resized-crop"));
  }
  choice.operators = "recipe";
  EXPECT_EQ(refusal(choice),
            "show: --operators recipe is for the data set of a recipe; use random-resized-crop");
}

// A pack may have images of any shape, such as 28x20 pixels of one channel.
TEST_F(LoaderDataTest, CropsAndCutsByTheShapeOfTheImages) {
  const ImageShape shape{1, 28, 20};
  const auto bytes = std::make_shared<std::vector<std::uint8_t>>(
      static_cast<std::size_t>(3 * shape.elements()), std::uint8_t{0});
  const ImageDataset grey("grey", shape, 1,
                          {{.images = bytes->data(),
                            .image_stride = shape.elements(),
                            .labels = bytes->data(),
                            .label_stride = 1,
                            .count = 3,
                            .keep_alive = bytes}});
  pack_images(grey, folder_ / "grey.pack");
  const LoaderDataChoice choice = choice_of((folder_ / "grey.pack").string());
  const Normalize halves{.mean = {0.5}, .std = {0.25}};
  expect_operators(choice, "normalize", "normalize", {halves});
  expect_operators(
      choice, "crop-flip-cutout", "crop-flip-cutout",
      {Pad{4}, RandomCrop{ImageSize(28, 20)}, RandomHorizontalFlip{}, halves, Cutout{5}});
  EXPECT_EQ(open_loader_data("show", choice).dataset.size(), 3);
}

// The limits of files reach a folder that is named by itself, and one that a recipe reads.
TEST_F(LoaderDataTest, ReadsFilesAsItIsTold) {
  folder_.write("photos/class0/0.webp", std::string("RIFF\4\0\0\0WEBP", 12));
  LoaderDataChoice plain = choice_of(photos());
  LoaderDataChoice recipe = choice_of("autoencoder");
  recipe.directory = photos();
  for (LoaderDataChoice* choice : {&plain, &recipe}) {
    EXPECT_THROW(open_loader_data("show", *choice), DataError) << "an image of another format";
    choice->keep_unreadable = true;
    choice->max_image_pixels = 1199;
    const bool is_plain = choice == &plain;
    testing::internal::CaptureStderr();
    const ImageDataset images = open_loader_data("show", *choice).dataset;
    const std::string notes = testing::internal::GetCapturedStderr();
    EXPECT_EQ(images.size(), is_plain ? 21 : 17) << "of a recipe, the images to train on";
    EXPECT_EQ(notes.find("note: split by seed 0: 17 images to train on, ") != std::string::npos,
              !is_plain);
    EXPECT_THAT(notes, Not(HasSubstr("stay in memory"))) << "the decoding itself is shown";
    const auto refused = [](const ImageDataset& dataset) {
      ImageReader reader;
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < dataset.size(); ++i) {
        const std::string text =
            testing_support::message_of<DataError>([&] { dataset.read(i, reader); });
        count += text.find("1200 pixels, at most 1199 are allowed") != std::string::npos ? 1 : 0;
      }
      return count;
    };
    EXPECT_GE(refused(images), is_plain ? 20 : 16);
    choice->max_image_pixels = 1200;
    testing::internal::CaptureStderr();
    EXPECT_EQ(refused(open_loader_data("show", *choice).dataset), 0);
    testing::internal::GetCapturedStderr();
  }
  EXPECT_TRUE(open_loader_data("show", plain).dataset.is_file(0));
  plain.exif_transpose = true;
  EXPECT_FALSE(open_loader_data("show", plain).dataset.is_file(0)) << "it is turned first";
}

TEST_F(LoaderDataTest, SaysWhichChoicesDoNotFit) {
  // A recipe's data, a known data set that is no recipe's, and one that is both.
  for (const std::string source : {"autoencoder", "cifar100", "mnist"}) {
    LoaderDataChoice choice = choice_of(source);
    choice.exif_transpose = true;
    EXPECT_EQ(refusal(choice),
              "show: --exif-transpose belongs to a folder or pack of image files, got --dataset " +
                  source);
  }
  LoaderDataChoice twice = choice_of(photos());
  twice.directory = photos();
  EXPECT_EQ(refusal(twice),
            "show: --data belongs to a known data set (mnist, cifar10, cifar100); --dataset names "
            "a folder or a pack itself");
  EXPECT_EQ(refusal(choice_of("cifar1O")),
            "show: --dataset must be one of mnist, cifar10, cifar100, a folder of images or a "
            "pack, got 'cifar1O', which does not exist; did you mean 'cifar10'?");
  LoaderDataChoice sized = choice_of("mnist");
  for (const int size : {0, 65537}) {
    sized.size = size;
    EXPECT_EQ(refusal(sized), lockstep::str("show: --size must be from 1 to 65536, got ", size));
  }
  for (const int size : {1, 65536}) {
    sized.size = size;
    EXPECT_EQ(refusal(sized), "nothing was thrown");
  }
  sized.max_image_pixels = 0;
  EXPECT_THAT(refusal(sized), StartsWith("show: --max-image-pixels must be from 1 to "));
}

// The folder that the user names is the only place to search.
TEST_F(LoaderDataTest, LooksForKnownDataInTheFolderThatIsNamed) {
  testing_support::write_mnist(folder_, "other/train", 7);
  testing_support::write_mnist(folder_, "other/t10k", 5);
  LoaderDataChoice choice = choice_of("mnist");
  EXPECT_EQ(open_loader_data("show", choice).dataset.size(), 30);
  choice.directory = (folder_ / "other").string();
  EXPECT_EQ(open_loader_data("show", choice).dataset.size(), 7);
  choice.source = "cifar100";
  EXPECT_THAT(testing_support::message_of<DataError>([&] { open_loader_data("show", choice); }),
              HasSubstr(" in " + (folder_ / "other").string() + " or its subfolder cifar100"));
}

}  // namespace
}  // namespace lockstep::cli
