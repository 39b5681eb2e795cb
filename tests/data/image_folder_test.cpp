#include <lockstep/data/image_folder.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/choices.h>
#include <lockstep/data/augment/native.h>
#include <lockstep/formats/png.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// A PNG whose first pixel says which it is.
std::string png(int width, int height, std::uint8_t mark) {
  std::string pixels = pattern(static_cast<std::size_t>(width * height * 3));
  pixels[0] = static_cast<char>(mark);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(pixels.data());
  return encode_png({bytes, pixels.size()}, width, height);
}

class ImageFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) { folder.write(name, content); }
  std::string error() {
    return message_of<DataError>([&] { load_image_folder(folder.path()); });
  }
  TemporaryDirectory folder;
};

TEST_F(ImageFolder, TakesClassesAndFilesInTheOrderOfTheirNames) {
  write("dog/b.png", png(4, 3, 2));
  write("dog/a.PNG", png(5, 3, 1));
  write("dog/deeper/a.png", png(6, 3, 3));
  write("dog/notes.txt", "no image");
  write("cat/z.png", png(7, 3, 0));
  write("readme.png", "not in a class, so never opened");
  const ImageDataset dataset = load_image_folder(folder.path());
  ASSERT_EQ(dataset.size(), 4);
  EXPECT_EQ(dataset.num_classes(), 2);
  EXPECT_THAT(dataset.class_names(), ::testing::ElementsAre("cat", "dog"));
  EXPECT_EQ(subset(dataset, {3}).class_names(), dataset.class_names());
  EXPECT_EQ(concatenate({dataset, dataset}).class_names(), dataset.class_names());
  EXPECT_EQ(dataset.shape(), (ImageShape{3, 0, 0}));
  ImageReader reader;
  const int widths[] = {7, 5, 4, 6};
  for (std::int64_t i = 0; i < 4; ++i) {
    dataset.read(i, reader);
    EXPECT_FALSE(reader.is_decoded());
    EXPECT_EQ(reader.shape(), (ImageShape{3, 3, widths[i]}));
    EXPECT_EQ(reader.pixels({0, 0, 1, 1}).pixels[0], i);
    EXPECT_EQ(dataset.label(i), i == 0 ? 0 : 1);
  }
  EXPECT_THAT(message_of<ConfigError>([&] { dataset.image(0); }), HasSubstr("its images are files"));
}

TEST_F(ImageFolder, SaysWhatIsMissing) {
  EXPECT_THAT(error(), HasSubstr("has no subfolders, of which each would be a class"));
  write("cat/a.txt", "");
  EXPECT_THAT(error(), HasSubstr("cat: holds no .jpg, .jpeg or .png file"));
  write("cat/a.png", "");
  write("cat/b.webp", "");
  EXPECT_THAT(error(), HasSubstr("b.webp: .webp files are not read; convert it"));
  EXPECT_THAT(message_of<DataError>([&] { load_image_folder(folder / "none"); }),
              HasSubstr("none: No such file"));
}

TEST_F(ImageFolder, NamesADamagedFile) {
  write("cat/a.png", png(4, 3, 2).substr(0, 40));
  write("cat/b.jpg", "GIF89a");
  const ImageDataset dataset = load_image_folder(folder.path());
  ImageReader reader;
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_THAT(message_of<DataError>([&] {
                  dataset.read(i, reader);
                  reader.pixels({0, 0, 3, 4});
                }),
                HasSubstr(i == 0 ? "a.png" : "b.jpg"));
  }
  std::filesystem::remove(folder / "cat/a.png");
  EXPECT_THAT(message_of<DataError>([&] { dataset.read(0, reader); }), HasSubstr("a.png: No such file"));
}

// What a list shows of a file is decoded, and equals the same list on the whole image.
TEST_F(ImageFolder, DecodesWhatTheListShows) {
  write("cat/a.png", png(60, 47, 9));
  const ImageDataset dataset = load_image_folder(folder.path());
  const Normalize normalize{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}};
  const Augmentation lists[] = {
      {CenterCrop{{20, 31}}, normalize},
      {RandomCrop{{47, 60}}, RandomHorizontalFlip{}, normalize, Cutout{9}},
      {Pad{9, 77}, RandomCrop{{15, 70}}, RandomVerticalFlip{}, normalize},
      {RandomResizedCrop{{24, 32}}, RandomHorizontalFlip{}, normalize},
      {Pad{50}, RandomCrop{{40, 12}}, normalize},  // often nothing but padding
      {RandomHorizontalFlip{}, Resize{{31, 30}}, normalize},
      {Cutout{30}, RandomHorizontalFlip{}, CenterCrop{{60, 20}}, normalize},
  };
  ImageReader reader;
  ImageReader whole;
  for (const Augmentation& list : lists) {
    const AugmentationPlan plan(list, dataset.shape());
    std::vector<float> output(static_cast<std::size_t>(plan.output_shape().elements()));
    std::vector<float> expected(output.size());
    for (std::uint64_t sample = 0; sample < 50; ++sample) {
      dataset.read(0, reader);
      plan.apply(reader, {.sample = sample}, output.data());
      dataset.read(0, whole);
      plan.apply(whole.pixels({0, 0, 47, 60}), {.sample = sample}, expected.data());
      ASSERT_EQ(output, expected) << "list " << &list - lists << ", sample " << sample;
    }
  }
}

TEST(ImageFolderOfPhotographs, IsDecodedAtAReducedSizeWhereThatSuffices) {
  LOCKSTEP_SKIP_WITHOUT("trashnet");
  const std::filesystem::path folder = real_data("trashnet").value();
  const ImageDataset dataset = load_image_folder(folder);
  ASSERT_EQ(dataset.size(), 2527);
  EXPECT_EQ(dataset.num_classes(), 6);
  ImageReader reader;
  dataset.read(0, reader);
  ASSERT_EQ(reader.shape(), (ImageShape{3, 150, 150}));
  const Box whole = {0, 0, 150, 150};
  const Box part = {10, 21, 100, 120};
  // At 1/factor there are still 1.5 times as many pixels as are wanted.
  EXPECT_EQ(reader.reduced(whole, 51, 20).view.shape, (ImageShape{3, 150, 150}));
  EXPECT_EQ(reader.reduced(whole, 20, 51).factor, 1);
  EXPECT_EQ(reader.reduced(whole, 50, 50).view.shape, (ImageShape{3, 75, 75}));
  EXPECT_EQ(reader.reduced(whole, 25, 20).factor, 2);
  EXPECT_EQ(reader.reduced(whole, 24, 24).view.shape, (ImageShape{3, 38, 38}));
  EXPECT_EQ(reader.reduced(whole, 12, 12).view.shape, (ImageShape{3, 19, 19}));
  EXPECT_EQ(reader.reduced(whole, 1, 1).factor, 8);
  // Whole reduced pixels that cover the part, and where in them it lies.
  const ReducedView covering = reader.reduced(part, 10, 10);
  EXPECT_EQ(covering.factor, 4);
  EXPECT_EQ(covering.view.shape, (ImageShape{3, 26, 31}));
  EXPECT_EQ(covering.part, (Box{2, 1, 100, 120}));
  EXPECT_EQ(reader.pixels(part).shape, (ImageShape{3, 100, 120}));
  load_image_folder(folder, {.decoding = ImageReader::Decoding::kExact}).read(0, reader);
  EXPECT_EQ(reader.reduced(part, 10, 10).factor, 1);
  EXPECT_EQ(reader.reduced(part, 10, 10).view.shape, (ImageShape{3, 100, 120}));
}

}  // namespace
}  // namespace lockstep::testing
