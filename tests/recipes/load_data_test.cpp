// When a recipe's data is missing or wrong, it must fail before training starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/png.h>
#include <lockstep/recipes/recipe.h>
#include <tests/support/data_bytes.h>
#include <tests/support/http_server.h>
#include <tests/support/messages.h>
#include <tests/support/mnist_files.h>
#include <tests/support/real_data.h>
#include <tests/support/scoped_environment.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoadData : public ::testing::Test {
 protected:
  LoadData() { environment_.hide_data((directory_ / "cache").string()); }

  recipes::RecipeData load(const std::string& recipe, bool may_download = true) {
    return recipes::find_recipe(recipe).load_data(
        {.may_download = may_download,
         .message = [this](const std::string& text) { messages_.push_back(text); }});
  }
  void write_mnist(std::uint32_t side = 28) {
    for (const std::string split : {"train", "t10k"}) {
      lockstep::testing_support::write_mnist(directory_, "data/" + split, 20, side);
    }
    environment_.set("LOCKSTEP_DATA", (directory_ / "data").string());
  }

  const std::optional<std::filesystem::path> trashnet_ =
      real_data("trashnet");  ///< Found before LOCKSTEP_DATA is hidden.
  TemporaryDirectory directory_;
  ScopedEnvironment environment_;
  std::vector<std::string> messages_;
};

TEST_F(LoadData, MnistFromFiles) {
  write_mnist();
  const recipes::RecipeData data = load("mnist");
  EXPECT_EQ(data.description, "MNIST");
  EXPECT_EQ(data.train.size(), 20);
  EXPECT_EQ(data.load_test().size(), 20);
  EXPECT_THAT(messages_, ::testing::IsEmpty());
}

// A part has its own name and number of images, so that none can take the place of the other.
TEST_F(LoadData, EachPartFromItsOwnFiles) {
  lockstep::testing_support::write_mnist(directory_, "data/train", 30);
  lockstep::testing_support::write_mnist(directory_, "data/t10k", 20);
  environment_.set("LOCKSTEP_DATA", (directory_ / "data").string());
  const recipes::RecipeData digits = load("mnist");
  EXPECT_EQ(digits.train.size(), 30);
  EXPECT_EQ(digits.train.name(), "MNIST train");
  EXPECT_EQ(digits.load_test().size(), 20);
  EXPECT_EQ(digits.load_test().name(), "MNIST test");
  EXPECT_EQ(digits.fingerprint, "");
  EXPECT_FALSE(digits.is_split_at_random);

  directory_.write("data/test_batch.bin", cifar_records(10'000));
  for (int i = 1; i <= 5; ++i) {
    std::filesystem::create_hard_link(directory_ / "data/test_batch.bin",
                                      directory_ / lockstep::str("data/data_batch_", i, ".bin"));
  }
  const recipes::RecipeData photographs = load("cifar10");
  EXPECT_EQ(photographs.description, "CIFAR-10");
  EXPECT_EQ(photographs.train.size(), 50'000);
  EXPECT_EQ(photographs.load_test().size(), 10'000);
}

// The user's own folder is the only place to search, and the recipe's own messages name it.
TEST_F(LoadData, OnlyInTheFolderThatItIsTold) {
  write_mnist();
  std::filesystem::create_directory(directory_ / "empty");
  const std::string folder = (directory_ / "empty").string();
  for (const char* recipe : {"mnist", "cifar10"}) {
    EXPECT_THAT(message_of<DataError>(
                    [&] { recipes::find_recipe(recipe).load_data({.directory = folder}); }),
                HasSubstr(lockstep::str(" in ", folder, " or its subfolder ", recipe)));
  }
  lockstep::testing_support::write_mnist(directory_, "empty/mnist/train", 7);
  lockstep::testing_support::write_mnist(directory_, "empty/mnist/t10k", 5);
  const recipes::RecipeData data =
      recipes::find_recipe("mnist").load_data({.directory = folder, .may_download = false});
  EXPECT_EQ(data.train.size(), 7);
  EXPECT_EQ(data.load_test().size(), 5);
}

TEST_F(LoadData, DownloadsNothingWhereItMayNot) {
  EXPECT_THAT(message_of<DataError>([&] { load("cifar10", /*may_download=*/false); }),
              HasSubstr("cannot find the data set cifar10: not in LOCKSTEP_DATA nor in "));
}

TEST_F(LoadData, GeneratedDigitsWhereNothingMayBeDownloaded) {
  const recipes::RecipeData data = load("mnist", /*may_download=*/false);
  EXPECT_EQ(data.description, "generated digits");
  EXPECT_EQ(data.train.shape(), (ImageShape{1, 28, 28}));
  EXPECT_EQ(data.train.size(), 12'000);
  EXPECT_EQ(data.load_test().size(), 2'000);
  EXPECT_THAT(messages_,
              ElementsAre("MNIST was not found and could not be downloaded (downloads are not "
                          "allowed here); training on generated digits instead"));
}

#ifdef LOCKSTEP_HAS_DOWNLOADER

TEST_F(LoadData, GeneratedDigitsOnlyWhereNobodyAnswers) {
  environment_.set("LOCKSTEP_MIRROR", "http://127.0.0.1:1");
  EXPECT_EQ(load("mnist").description, "generated digits");
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("generated digits instead")));

  messages_.clear();
  const HttpServer server(HttpFiles{{"/mnist/train-images-idx3-ubyte.gz", "another file"}});
  environment_.set("LOCKSTEP_MIRROR", server.url());
  EXPECT_THAT(message_of<DataError>([&] { load("mnist"); }), HasSubstr("wrong checksum"));
  directory_.write("file", "x");
  environment_.set("XDG_CACHE_HOME", (directory_ / "file").string());
  EXPECT_THAT(message_of<DataError>([&] { load("mnist"); }), HasSubstr("cannot create the folder"));
  EXPECT_THAT(messages_, ::testing::IsEmpty());
}

#endif

TEST_F(LoadData, ABrokenTestSetIsFoundAtTheStart) {
  const std::string images = idx_images(20, 28, 28);
  const std::string compressed = gzip(images);
  const std::string name = "t10k-images-idx3-ubyte";
  struct Case {
    std::string file;
    std::string content;
  };
  const Case cases[] = {
      {name, images.substr(0, images.size() - 1)},
      {name, idx_images(21, 28, 28)},
      {name + ".gz", compressed.substr(0, compressed.size() / 2)},
      {name + ".gz", "no gzip"},
      {"t10k-labels-idx1-ubyte", ""},
  };
  for (const Case& c : cases) {
    write_mnist();
    if (c.file.ends_with(".gz")) std::filesystem::remove(directory_ / ("data/" + name));
    directory_.write("data/" + c.file, c.content);
    EXPECT_THAT(message_of<DataError>([&] { load("mnist"); }), HasSubstr("data/" + c.file));
    std::filesystem::remove_all(directory_ / "data");
  }
  for (int i = 1; i <= 5; ++i) {
    directory_.write("data/data_batch_" + std::to_string(i) + ".bin", "not looked at first");
  }
  directory_.write("data/test_batch.bin", cifar_records(3));
  EXPECT_THAT(message_of<DataError>([&] { load("cifar10"); }),
              AllOf(HasSubstr("test_batch.bin"), HasSubstr("9219 bytes")));
}

TEST_F(LoadData, ResNet50SplitGeneratesImages) {
  const recipes::RecipeData data = load("resnet50-split");
  EXPECT_EQ(data.description, "generated images");
  EXPECT_EQ(data.train.size(), 360);
  EXPECT_EQ(data.train.shape(), (ImageShape{3, 128, 128}));
  EXPECT_EQ(data.train.num_classes(), 1000);
  EXPECT_EQ(data.load_test().size(), 120);
  EXPECT_THAT(messages_, ::testing::IsEmpty());
}

// Only the names of the files are read.
TEST_F(LoadData, ResNet50SplitFromFolders) {
  for (const char* file : {"photos/train/cat/1.jpg", "photos/train/cat/2.jpg",
                           "photos/train/dog/1.png", "photos/val/cat/1.jpg"}) {
    directory_.write(file, "");
  }
  const std::string folder = (directory_ / "photos").string();
  const auto load_folder = [](const std::string& name) {
    return recipes::find_recipe("resnet50-split").load_data({.directory = name});
  };
  EXPECT_THAT(message_of<DataError>([&] { load_folder(folder); }),
              AllOf(HasSubstr(folder), HasSubstr("train has the class 'dog', which val lacks")));
  directory_.write("photos/val/dog/7.jpeg", "");
  const recipes::RecipeData data = load_folder(folder);
  EXPECT_EQ(data.description, "photos");
  EXPECT_EQ(load_folder(folder + "/").description, "photos");
  EXPECT_EQ(data.train.size(), 3);
  EXPECT_EQ(data.train.num_classes(), 2);
  EXPECT_EQ(data.load_test().size(), 2);
  EXPECT_THAT(message_of<ConfigError>([&] { load_folder((directory_ / "nowhere").string()); }),
              HasSubstr("nowhere does not exist"));
  std::filesystem::remove_all(directory_ / "photos/val");
  EXPECT_EQ(message_of<ConfigError>([&] { load_folder(folder); }),
            "resnet50-split: --data " + folder +
                " has no folder 'val'; expected train and val, each with a folder of images for "
                "each class");
}

TEST_F(LoadData, ResNet50SplitObeysTheLimitOfPixels) {
  for (const char* file : {"photos/train/cat/1.png", "photos/val/cat/2.png"}) {
    directory_.write(file, detail::encode_png(std::vector<std::uint8_t>(20 * 24 * 3, 9), 20, 24));
  }
  const auto read_all = [&](std::int64_t limit) {
    const recipes::RecipeData data =
        recipes::find_recipe("resnet50-split")
            .load_data({.directory = (directory_ / "photos").string(), .max_image_pixels = limit});
    std::vector<std::string> errors;
    for (const ImageDataset& images : {data.train, data.load_test()}) {
      ImageReader reader;
      errors.push_back(message_of<DataError>([&] { images.read(0, reader); }));
    }
    return errors;
  };
  const std::string nothing = "nothing was thrown";
  EXPECT_THAT(read_all(480), ElementsAre(nothing, nothing));
  EXPECT_THAT(read_all(479), ElementsAre(HasSubstr("train/cat/1.png: an image of 20x24"),
                                         HasSubstr("val/cat/2.png: an image of 20x24")));
}

// A photograph of 150x150 pixels, of which the recipe needs 16x16.
TEST_F(LoadData, ResNet50SplitDecodesImagesAsItIsTold) {
  if (!trashnet_) GTEST_SKIP() << "needs the data set trashnet in LOCKSTEP_DATA";
  const std::string photo = read_text(*trashnet_ / "glass/glass1.jpg");
  for (const char* file : {"photos/train/cat/1.jpg", "photos/val/cat/2.jpg"}) {
    directory_.write(file, photo);
  }
  using Decoding = ImageReader::Decoding;
  for (const Decoding decoding : {Decoding::kExact, Decoding::kScaled}) {
    const recipes::RecipeData data =
        recipes::find_recipe("resnet50-split")
            .load_data({.directory = (directory_ / "photos").string(), .decoding = decoding});
    for (const ImageDataset& images : {data.train, data.load_test()}) {
      ImageReader reader;
      images.read(0, reader);
      const std::int64_t factor = reader.reduced({0, 0, 150, 150}, 16, 16).factor;
      EXPECT_EQ(factor, decoding == Decoding::kExact ? 1 : 4);
    }
  }
}

TEST_F(LoadData, DigitsOfAnotherSizeAreRefused) {
  write_mnist(14);
  EXPECT_THAT(message_of<DataError>([&] { load("mnist"); }),
              AllOf(HasSubstr((directory_ / "data").string()), HasSubstr("28x28")));
  // With the right number of bytes, a wrong shape is noticed only by reading the header.
  write_mnist();
  directory_.write("data/train-images-idx3-ubyte", idx_images(20, 14, 56));
  EXPECT_THAT(message_of<DataError>([&] { load("mnist"); }),
              AllOf(HasSubstr((directory_ / "data").string()),
                    HasSubstr(": got images of 14x56, the net takes 28x28")));
}

}  // namespace
}  // namespace lockstep::testing_support
