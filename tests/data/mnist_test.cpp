#include <lockstep/data/datasets/mnist.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <optional>
#include <string>

#include <lockstep/core/error.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

constexpr const char* kImages = "train-images-idx3-ubyte";
constexpr const char* kLabels = "train-labels-idx1-ubyte";

TEST(Mnist, ReadsPlainAndCompressedFilesAlike) {
  const TemporaryDirectory directory;
  const std::string images = idx_images(12, 4, 6);
  const std::string labels = idx_labels(12);
  directory.write(std::string("plain/") + kImages, images);
  directory.write(std::string("plain/") + kLabels, labels);
  directory.write(std::string("gz/") + kImages + ".gz", gzip(images));
  directory.write(std::string("gz/") + kLabels + ".gz", gzip(labels));
  for (const char* folder : {"plain", "gz"}) {
    const ImageDataset dataset = load_mnist(directory / folder, Split::kTrain);
    EXPECT_EQ(dataset.name(), "MNIST train");
    EXPECT_EQ(dataset.size(), 12);
    EXPECT_EQ(dataset.shape(), (ImageShape{1, 4, 6}));
    EXPECT_EQ(dataset.num_classes(), 10);
    for (std::int64_t i = 0; i < 12; ++i) {
      EXPECT_EQ(dataset.label(i), i % 10);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(dataset.image(i).pixels), 24),
                images.substr(16 + 24 * i, 24));
    }
  }
}

TEST(Mnist, ADatasetOutlivesItsCopiesAndFiles) {
  const TemporaryDirectory directory;
  directory.write(kImages, idx_images(3, 2, 2));
  directory.write(kLabels, idx_labels(3));
  std::optional<ImageDataset> first = load_mnist(directory.path(), Split::kTrain);
  const ImageDataset copy = *first;
  first.reset();
  std::filesystem::remove(directory / kImages);
  EXPECT_EQ(copy.label(2), 2);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(copy.image(2).pixels), 4),
            pattern(12).substr(8));
}

TEST(Mnist, RefusesWhatIsWrong) {
  const std::string images = idx_images(12, 4, 6);
  const std::string labels = idx_labels(12);
  const std::string compressed = gzip(images);
  std::string flipped = compressed;
  flipped[flipped.size() / 2] ^= 1;
  std::string bad_label = labels;
  bad_label.back() = 10;
  struct Case {
    const char* name;
    std::optional<std::string> images;
    std::optional<std::string> images_gz;
    std::optional<std::string> labels;
    std::string message;
  };
  const Case cases[] = {
      {"no images", {}, {}, labels, std::string("cannot find ") + kImages},
      {"no labels", images, {}, {}, std::string("cannot find ") + kLabels},
      {"truncated", images.substr(0, 50), {}, labels, "truncated"},
      {"oversized", images + "x", {}, labels, "oversized"},
      {"bit flipped", {}, flipped, labels, "damaged or truncated gzip"},
      {"truncated gzip", {}, compressed.substr(0, compressed.size() - 9), labels, kImages},
      {"not gzip", {}, images, labels, "not a gzip file"},
      {"labels as images", idx_labels(20), {}, labels, "got IDX labels"},
      {"images as labels", images, {}, images, "got IDX images"},
      {"counts differ", images, {}, idx_labels(11), "holds 12 images, but"},
      {"label out of range", images, {}, bad_label, "label 11 is 10, expected 0 to 9"},
      {"empty file", "", {}, labels, "truncated, got 0 bytes"},
  };
  for (const Case& c : cases) {
    const TemporaryDirectory directory;
    if (c.images) directory.write(kImages, *c.images);
    if (c.images_gz) directory.write(std::string(kImages) + ".gz", *c.images_gz);
    if (c.labels) directory.write(kLabels, *c.labels);
    EXPECT_THAT(message_of<DataError>([&] { load_mnist(directory.path(), Split::kTrain); }),
                ::testing::AllOf(HasSubstr(c.message), HasSubstr(directory.path().string())))
        << c.name;
  }
}

// The check before a training reads the sizes of the files alone.
TEST(Mnist, ChecksTheSizesOfItsFiles) {
  const TemporaryDirectory directory;
  const auto check = [&](Split split, const ImageShape& shape) {
    return message_of<DataError>([&] { check_mnist(directory.path(), split, shape); });
  };
  const std::string path = directory.path().string() + "/";
  directory.write(kImages, idx_images(12, 4, 6));
  directory.write(kLabels, idx_labels(12));
  EXPECT_EQ(check(Split::kTrain, {1, 4, 6}), "nothing was thrown");
  EXPECT_EQ(check(Split::kTrain, {1, 4, 5}),
            path + kImages +
                ": holds 304 bytes, expected 256 for 12 images of 4x5, one for each "
                "label in " +
                path + kLabels + "; it is truncated or another's");
  directory.write(kLabels, idx_labels(11));
  EXPECT_THAT(check(Split::kTrain, {1, 4, 6}),
              HasSubstr("holds 304 bytes, expected 280 for 11 images of 4x6"));
  directory.write(kLabels, std::string(8, 'x'));
  EXPECT_EQ(check(Split::kTrain, {1, 4, 6}),
            path + kLabels + ": holds 8 bytes, which are not labels");
  EXPECT_THAT(check(Split::kTest, {1, 4, 6}), HasSubstr("cannot find t10k-labels-idx1-ubyte"));
  directory.write("t10k-labels-idx1-ubyte.gz", gzip(idx_labels(3)));
  EXPECT_THAT(check(Split::kTest, {1, 4, 6}), HasSubstr("cannot find t10k-images-idx3-ubyte"));
  directory.write("t10k-images-idx3-ubyte.gz", gzip(idx_images(3, 4, 6)));
  EXPECT_EQ(check(Split::kTest, {1, 4, 6}), "nothing was thrown");
  const ImageDataset test = load_mnist(directory.path(), Split::kTest);
  EXPECT_EQ(test.name(), "MNIST test");
  EXPECT_THAT(test.class_names(),
              ::testing::ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"));
}

TEST(Mnist, TheRealOne) {
  LOCKSTEP_SKIP_WITHOUT("mnist");
  struct Case {
    Split split;
    std::int64_t size;
    std::array<int, 4> first_labels;
    double mean;  // the well-known 0.1307 of the training images; 0.1325 of the test images
  };
  const Case cases[] = {{Split::kTrain, 60'000, {5, 0, 4, 1}, 0.1307},
                        {Split::kTest, 10'000, {7, 2, 1, 0}, 0.1325}};
  for (const Case& c : cases) {
    const ImageDataset dataset = load_mnist(*real_data("mnist"), c.split);
    ASSERT_EQ(dataset.size(), c.size);
    ASSERT_EQ(dataset.shape(), (ImageShape{1, 28, 28}));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(dataset.label(i), c.first_labels[i]);
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      sum = std::accumulate(dataset.image(i).pixels, dataset.image(i).pixels + 784, sum);
    }
    EXPECT_NEAR(static_cast<double>(sum) / 255 / 784 / static_cast<double>(c.size), c.mean, 5e-5);
  }
}

}  // namespace
}  // namespace lockstep::testing_support
