#include <lockstep/data/datasets/cached_images.h>

#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/data/augment/native.h>
#include <tests/data/photo_folder.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPlenty = 1 << 24;
constexpr int kSide = 24;
const Normalize kImageNetNormalize = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};

// The result of the augmentation `list` for image `index`.
std::vector<float> made_of(const ImageDataset& dataset, const Augmentation& list,
                           std::int64_t index) {
  const data::AugmentationPlan plan(list, dataset.shape());
  std::vector<float> output(static_cast<std::size_t>(plan.output_shape().elements()));
  ImageReader reader;
  dataset.read(index, reader);
  plan.apply(reader, {.seed = 1, .epoch = 0, .sample = static_cast<std::uint64_t>(index)},
             output.data());
  return output;
}

bool is_cached(const ImageDataset& dataset, std::int64_t index) {
  ImageReader reader;
  dataset.read(index, reader);
  return reader.is_decoded();
}

void remove_files(const PhotoFolder& folder) {
  for (int label = 0; label < 3; ++label) {
    std::filesystem::remove_all(folder.path() / std::to_string(label));
  }
}

TEST(CachedImages, AreTheSameAsWithoutACache) {
  const PhotoFolder folder;
  const ImageDataset plain = folder.dataset();
  struct Case {
    std::optional<ImageSize> size;
    Augmentation list;
  };
  const Case cases[] = {
      {ImageSize{kSide}, {Resize{kSide}, kImageNetNormalize}},
      {ImageSize{kSide, 30}, {Resize{{kSide, 30}}, RandomHorizontalFlip{}, kImageNetNormalize}},
      {std::nullopt, {RandomResizedCrop{kSide}, RandomHorizontalFlip{}, kImageNetNormalize}},
  };
  for (const Case& each : cases) {
    const ImageDataset cached = cache_images(plain, {.max_bytes = kPlenty, .size = each.size});
    EXPECT_EQ(cached.size(), plain.size());
    EXPECT_EQ(cached.num_classes(), plain.num_classes());
    EXPECT_EQ(cached.class_names(), plain.class_names());
    for (const char* pass : {"stores", "reads what is stored"}) {
      for (std::int64_t i = 0; i < plain.size(); ++i) {
        EXPECT_EQ(cached.label(i), plain.label(i));
        EXPECT_EQ(made_of(cached, each.list, i), made_of(plain, each.list, i)) << pass << ' ' << i;
      }
    }
  }
}

// An image that has one side of the wanted size already is still resized.
TEST(CachedImages, OfOneEqualSideAreResized) {
  const PhotoFolder folder;
  const ImageDataset plain = folder.dataset();
  ImageReader reader;
  plain.read(4, reader);
  const int height = static_cast<int>(reader.shape().height);
  const int width = static_cast<int>(reader.shape().width);
  for (const ImageSize size :
       {ImageSize{height, width - 9}, ImageSize{height - 9, width}, ImageSize{height, width}}) {
    const Augmentation list = {Resize{size}, kImageNetNormalize};
    const ImageDataset cached = cache_images(plain, {.max_bytes = kPlenty, .size = size});
    for (const char* pass : {"stores", "reads what is stored"}) {
      EXPECT_EQ(made_of(cached, list, 4), made_of(plain, list, 4)) << pass;
    }
    cached.read(4, reader);
    EXPECT_TRUE(reader.is_decoded());
    EXPECT_EQ(reader.shape(), (ImageShape{3, size.height, size.width}));
  }
}

TEST(CachedImages, NeedNoFileOnceTheyAreStored) {
  const PhotoFolder folder;
  const ImageDataset cached =
      cache_images(folder.dataset(), {.max_bytes = kPlenty, .size = ImageSize{kSide}});
  const Augmentation list = {Resize{kSide}, kImageNetNormalize};
  const std::vector<float> before = made_of(cached, list, 4);
  remove_files(folder);
  EXPECT_EQ(made_of(cached, list, 4), before);
  EXPECT_THROW(made_of(cached, list, 5), DataError) << "nobody has read it";
}

TEST(CachedImages, AreThoseForWhichThereIsRoom) {
  const PhotoFolder folder;
  const std::int64_t each = cached_bytes(3, kSide, kSide);
  EXPECT_EQ(each, 3 * kSide * kSide);
  EXPECT_EQ(cached_bytes(3, 5, 5), 128) << "75 bytes, on whole cache lines";
  const ImageDataset cached =
      cache_images(folder.dataset(), {.max_bytes = 3 * each + each / 2, .size = ImageSize{kSide}});
  for (const std::int64_t i : {7, 2, 9, 11, 0}) is_cached(cached, i);
  for (const std::int64_t i : {7, 2, 9}) EXPECT_TRUE(is_cached(cached, i)) << i;
  for (const std::int64_t i : {11, 0}) EXPECT_FALSE(is_cached(cached, i)) << i;
  const Augmentation list = {Resize{kSide}, kImageNetNormalize};
  EXPECT_EQ(made_of(cached, list, 11), made_of(folder.dataset(), list, 11));
}

TEST(CachedImages, AreSharedWithForkedProcesses) {
  const PhotoFolder folder;
  const ImageDataset cached =
      cache_images(folder.dataset(), {.max_bytes = kPlenty, .size = ImageSize{kSide}});
  const pid_t child = fork();
  if (child == 0) {
    is_cached(cached, 6);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const Augmentation list = {Resize{kSide}, kImageNetNormalize};
  const std::vector<float> expected = made_of(folder.dataset(), list, 6);
  remove_files(folder);
  EXPECT_EQ(made_of(cached, list, 6), expected);
}

TEST(CachedImages, AreReadByManyThreadsAtOnce) {
  const PhotoFolder folder;
  const ImageDataset plain = folder.dataset();
  const Augmentation list = {Resize{kSide}, kImageNetNormalize};
  std::vector<std::vector<float>> expected;
  for (std::int64_t i = 0; i < plain.size(); ++i) expected.push_back(made_of(plain, list, i));
  // The cache has no room for all images, so the threads also race for the last slot.
  const ImageDataset cached = cache_images(
      plain, {.max_bytes = 17 * cached_bytes(3, kSide, kSide), .size = ImageSize{kSide}});
  constexpr int kThreads = 4;
  std::vector<int> wrong(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int pass = 0; pass < 3; ++pass) {
        for (std::int64_t i = 0; i < plain.size(); ++i) {
          const std::int64_t index = (i + 5 * t) % plain.size();
          const auto place = static_cast<std::size_t>(index);
          if (made_of(cached, list, index) != expected[place]) ++wrong[static_cast<std::size_t>(t)];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
  int stored = 0;
  for (std::int64_t i = 0; i < plain.size(); ++i) stored += is_cached(cached, i) ? 1 : 0;
  EXPECT_LE(stored, 17);
  EXPECT_GE(stored, 17 - kThreads) << "a thread that loses the last room leaves its image out";
}

// Images of many sizes. Every pixel of an image is the image's number.
class ManySizes final : public ImageSource {
 public:
  static constexpr std::int64_t kImages = 400;
  static constexpr std::int64_t kLargest = 40;

  std::int64_t size() const override { return kImages; }
  std::int64_t label(std::int64_t) const override { return 0; }
  void read(std::int64_t index, ImageReader& reader) const override {
    const std::int64_t side = index % 2 == 0 ? 1 + index % 7 : kLargest - index % 5;
    const std::uint8_t* const pixels = pixels_[static_cast<std::size_t>(index)].data();
    reader.show(ImageView::planar(pixels, {3, side, side}));
  }

 private:
  static std::vector<std::vector<std::uint8_t>> numbers() {
    std::vector<std::vector<std::uint8_t>> all;
    for (std::int64_t i = 0; i < kImages; ++i) {
      all.emplace_back(3 * kLargest * kLargest, static_cast<std::uint8_t>(i % 251));
    }
    return all;
  }
  const std::vector<std::vector<std::uint8_t>> pixels_ = numbers();
};

// Whether every pixel of the image is its number.
bool holds_its_number(const ImageDataset& dataset, std::int64_t index, ImageReader& reader) {
  dataset.read(index, reader);
  const auto [channels, height, width] = reader.shape();
  const ImageView view = reader.pixels({0, 0, height, width});
  const std::uint8_t* const begin = view.pixels;
  return std::all_of(begin, begin + channels * height * width, [index](std::uint8_t pixel) {
    return pixel == static_cast<std::uint8_t>(index % 251);
  });
}

// Large and small images race for the last room repeatedly: no two may get the same bytes.
TEST(CachedImages, NeverShareTheirRoom) {
  const ImageDataset plain("sizes", {3, 0, 0}, 1, std::make_shared<const ManySizes>());
  constexpr int kThreads = 4;
  std::atomic<int> wrong = 0;
  for (std::int64_t round = 0; round < 100; ++round) {
    const ImageDataset cached = cache_images(plain, {.max_bytes = 40'000 + 192 * round});
    std::barrier start(kThreads);
    std::vector<std::thread> threads;
    for (std::int64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        ImageReader reader;
        start.arrive_and_wait();
        for (std::int64_t i = t; i < plain.size(); i += kThreads) cached.read(i, reader);
        start.arrive_and_wait();
        for (std::int64_t i = t; i < plain.size(); i += kThreads) {
          if (!holds_its_number(cached, i, reader)) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

// The lower half of a JPEG is missing. Crops of the upper half work, with and without a cache.
TEST(CachedImages, OfDamagedFilesAreReadFromThem) {
  TemporaryDirectory folder;
  const std::string whole = encode_jpeg({.width = 96, .height = 96});
  folder.write("0/cut.jpg", whole.substr(0, whole.size() / 2));
  const ImageDataset plain = load_image_folder(folder.path());
  const ImageRegion upper{0, 0, 16, 16};
  ImageReader reader;
  plain.read(0, reader);
  const ImageView view = reader.pixels(upper);
  std::vector<std::uint8_t> expected;
  for (std::int64_t x = 0; x < 16; ++x) expected.push_back(view.pixels[x * view.pixel_stride]);

  const ImageDataset cached = cache_images(plain, {.max_bytes = kPlenty});
  for (const char* pass : {"first", "second"}) {
    cached.read(0, reader);
    const ImageView again = reader.pixels(upper);
    std::vector<std::uint8_t> found;
    for (std::int64_t x = 0; x < 16; ++x) found.push_back(again.pixels[x * again.pixel_stride]);
    EXPECT_EQ(found, expected) << pass;
    EXPECT_THROW(reader.pixels({0, 0, 96, 96}), DataError) << pass;
  }
}

// Caches of 1 TiB each, of which a process has room for at most 128 at a time.
TEST(CachedImages, GiveTheirAddressSpaceBack) {
  const std::uint8_t pixels[] = {3, 1, 4};
  const ImageDataset plain(
      "mine", {1, 1, 1}, 5,
      std::vector<ImageShard>{
          {.images = pixels, .image_stride = 1, .labels = pixels, .label_stride = 1, .count = 3}});
  constexpr std::int64_t kTebibyte = std::int64_t{1} << 40;
  try {
    cache_images(plain, {.max_bytes = kTebibyte});
  } catch (const Error& error) {
    GTEST_SKIP() << "needs a system that lends address space: " << error.what();
  }
  ImageReader reader;
  for (int round = 0; round < 150; ++round) {
    const ImageDataset cached = cache_images(plain, {.max_bytes = kTebibyte});
    for (const std::int64_t index : {2, 0, 2}) {
      cached.read(index, reader);
      ASSERT_EQ(reader.pixels({0, 0, 1, 1}).pixels[0], pixels[index]) << round;
    }
  }
}

TEST(CachedImages, RefuseOptionsThatCannotBe) {
  const PhotoFolder folder;
  const auto refusal = [&](const CacheImagesOptions& options) {
    return message_of<ConfigError>([&] { cache_images(folder.dataset(), options); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("max_bytes must be at least 1, got 0"));
  EXPECT_THAT(refusal({.max_bytes = kPlenty, .size = ImageSize{0, 5}}),
              HasSubstr("size.height must be from 1 to 65535, got 0"));
  EXPECT_THAT(message_of<Error>([&] {
                cache_images(folder.dataset(),
                             {.max_bytes = std::numeric_limits<std::int64_t>::max() / 4});
              }),
              HasSubstr("give a smaller cache"));
}

}  // namespace
}  // namespace lockstep::testing_support
