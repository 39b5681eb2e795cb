// Tests of Loader with images in files and packs: results do not depend on threads, all options
// work together, damage is handled, and memory stays constant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/core/cpu.h>
#include <lockstep/core/error.h>
#include <lockstep/data/datasets/cached_images.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/packed_images.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/data/preparation/pack_images.h>
#include <lockstep/formats/pack.h>
#include <lockstep/formats/png.h>
#include <tests/data/loader/epoch_batches.h>
#include <tests/data/photo_folder.h>
#include <tests/support/captured_log.h>
#include <tests/support/messages.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Normalize kPhotoNormalize{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
const Augmentation kPhoto = {
    RandomResizedCrop{32}, RandomRotation{.degrees = 20, .interpolation = Interpolation::kBilinear},
    ColorJitter{0.4, 0.4, 0.4, 0.1}, kPhotoNormalize};

Loader loader_of(const ImageDataset& dataset, const LoaderOptions& options) {
  return Loader(dataset, DistributedSampler(dataset.size(), {.seed = 3}), kPhoto, options);
}

struct ExactCase {
  const char* name;
  bool packed = false;
  bool keep_files = false;
  BatchMix mix;
};

class LoaderFilesExact : public ::testing::TestWithParam<ExactCase> {
 protected:
  using Decoding = ImageReader::Decoding;

  ImageDataset dataset() const {
    if (!GetParam().packed) return folder.dataset({.decoding = Decoding::kScaled});
    pack_images(folder.dataset(), out / "pack", {.keep_files = GetParam().keep_files});
    return load_packed_images(out / "pack", {.decoding = Decoding::kScaled});
  }
  // Images are decoded at full size before they are packed as pixels.
  ImageDataset expected() const {
    const bool pixels = GetParam().packed && !GetParam().keep_files;
    return folder.dataset({.decoding = pixels ? Decoding::kExact : Decoding::kScaled});
  }

  PhotoFolder folder;
  TemporaryDirectory out;
};

TEST_P(LoaderFilesExact, WhateverTheNumberOfThreads) {
  LoaderOptions options{.batch_size = 4, .seed = 9, .mix = GetParam().mix};
  Loader alone = loader_of(expected(), options);
  const std::vector<Batch> batches = read_epoch(alone, 2);
  ASSERT_EQ(batches.size(), 6U);
  EXPECT_FALSE(torch::equal(batches[0].images, read_epoch(alone, 3)[0].images));
  const ImageDataset images = dataset();
  for (const int threads : {0, 1, 3}) {
    for (const int prefetch : {1, 4}) {
      SCOPED_TRACE(lockstep::str(threads, " threads, prefetch ", prefetch));
      options.threads = threads;
      options.prefetch = prefetch;
      Loader loader = loader_of(images, options);
      expect_equal(read_epoch(loader, 2), batches);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, LoaderFilesExact,
                         ::testing::Values(ExactCase{"Folder"},
                                           ExactCase{"FolderMixed", false, false, RandomMix{}},
                                           ExactCase{"PackOfPixels", true},
                                           ExactCase{"PackOfPixelsMixed", true, false, RandomMix{}},
                                           ExactCase{"PackOfFiles", true, true},
                                           ExactCase{"PackOfFilesMixed", true, true, RandomMix{}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LoaderFiles, AllOptionsTogetherGoOnInMidEpoch) {
  const testing_support::CapturedLog log;
  const PhotoFolder folder;
  for (const char* name : {"1/4.png", "1/7.jpg"}) {
    const std::string whole = read_text(folder / name);
    folder.write(name, whole.substr(0, whole.size() / 2));
  }
  LoaderOptions options{.batch_size = 4,
                        .channels_last = true,
                        .dtype = torch::kBFloat16,
                        .seed = 9,
                        .on_corrupt_image = OnCorruptImage::kSkip,
                        .mix = RandomMix{}};
  Loader whole = loader_of(folder.dataset(), options);
  const std::vector<Batch> expected = read_epoch(whole, 1);
  ASSERT_EQ(expected.size(), 6U);
  EXPECT_EQ(whole.skipped_images(), 2);
  for (const int threads : {0, 1, 3}) {
    for (std::ptrdiff_t steps = 0; steps <= 6; ++steps) {
      SCOPED_TRACE(lockstep::str(threads, " threads, ", steps, " steps"));
      options.threads = threads;
      Loader before = loader_of(folder.dataset(), options);
      before.set_epoch(1);
      Batch taken;
      for (std::ptrdiff_t step = 0; step < steps; ++step) ASSERT_TRUE(before.next(taken));
      Loader after = loader_of(folder.dataset(), options);
      after.restore(sampler_position(to_settings(before.position())));
      const std::vector<Batch> rest = read_rest(after);
      expect_equal(rest, {expected.begin() + steps, expected.end()});
      EXPECT_EQ(before.skipped_images() + after.skipped_images(), 2);
      for (const Batch& batch : rest) {
        EXPECT_EQ(batch.images.scalar_type(), torch::kBFloat16);
        EXPECT_EQ(batch.images.strides(), (torch::IntArrayRef{3 * 32 * 32, 1, 3 * 32, 3}));
        EXPECT_EQ(batch.labels.sizes(), (torch::IntArrayRef{batch.size, 3}));
      }
    }
  }
}

class LoaderDamagedPack : public ::testing::TestWithParam<int> {
 protected:
  LoaderDamagedPack() {
    pack_images(folder.dataset(), path, {});
    std::string bytes = read_text(path);
    const formats::PackReader reader(as_bytes(bytes), "");
    for (const std::int64_t index : {5, 10}) {
      const auto place = reader.record(index).bytes.data() - as_bytes(bytes).data();
      bytes[static_cast<std::size_t>(place)] ^= 1;
    }
    folder.write("damaged.pack", bytes);
  }
  Loader loader_of(const std::filesystem::path& file, OnCorruptImage on_corrupt_image) const {
    const Augmentation plain = {CenterCrop{48}, kPhotoNormalize};
    return Loader(load_packed_images(file), EvaluationSampler(PhotoFolder::kPhotos), plain,
                  {.batch_size = 4, .threads = GetParam(), .on_corrupt_image = on_corrupt_image});
  }

  PhotoFolder folder;
  std::filesystem::path path = folder / "whole.pack";
  std::filesystem::path damaged = folder / "damaged.pack";
};

TEST_P(LoaderDamagedPack, StopsTheRunAndNamesTheRecord) {
  Loader loader = loader_of(damaged, OnCorruptImage::kStop);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_THAT(message_of<DataError>([&] { loader.next(batch); }),
              AllOf(HasSubstr(damaged.string()), HasSubstr("record 5 is damaged")));
}

TEST_P(LoaderDamagedPack, LosesOnlyTheDamagedRecords) {
  const testing_support::CapturedLog log;
  Loader whole = loader_of(path, OnCorruptImage::kStop);
  Loader loader = loader_of(damaged, OnCorruptImage::kSkip);
  std::int64_t place = 0;
  for (const Batch& expected : read_epoch(whole, 0)) {
    std::vector<std::int64_t> kept;
    for (std::int64_t i = 0; i < expected.size; ++i, ++place) {
      if (place != 5 && place != 10) kept.push_back(i);
    }
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    const torch::Tensor rows = torch::tensor(kept);
    EXPECT_TRUE(torch::equal(batch.images, expected.images.index_select(0, rows)));
    EXPECT_TRUE(torch::equal(batch.labels, expected.labels.index_select(0, rows)));
  }
  EXPECT_EQ(loader.skipped_images(), 2);
  EXPECT_THAT(log.lines(),
              ElementsAre(AllOf(HasSubstr("skipped image 5"), HasSubstr(damaged.string()),
                                HasSubstr("record 5 is damaged")),
                          AllOf(HasSubstr("skipped image 10"), HasSubstr("record 10 is damaged"))));
}

INSTANTIATE_TEST_SUITE_P(Threads, LoaderDamagedPack, ::testing::Values(0, 2));

// If the images of one batch leaked in each epoch, memory would grow by 10 MiB.
TEST(LoaderFiles, KeepTheirMemoryFromEpochToEpoch) {
  const PhotoFolder folder;
  Loader loader =
      loader_of(folder.dataset(), {.batch_size = 4, .threads = 3, .seed = 9, .mix = RandomMix{}});
  long long before = 0;
  for (std::int64_t epoch = 0; epoch <= 250; ++epoch) {
    loader.set_epoch(epoch);
    for (const Batch& batch : loader) EXPECT_GT(batch.size, 0);
    if (epoch == 50) before = rss_bytes();
  }
  EXPECT_GT(before, 10'000'000);
  EXPECT_LT(rss_bytes() - before, 5 << 20);
}

// A photograph whose shorter side cannot be resized, in the middle of others.
TEST(LoaderFiles, NamesAnImageThatIsTooNarrow) {
  TemporaryDirectory folder;
  for (int i = 0; i < 6; ++i) {
    const int width = i == 3 ? 1 : 40, height = i == 3 ? 900 : 30;
    const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(3 * width * height), 100);
    folder.write(str("a/", i, ".png"), detail::encode_png(pixels, width, height));
  }
  const ImageDataset dataset = load_image_folder(folder.path());
  const Augmentation evaluation = {Resize{256, /*shorter_side=*/true}, CenterCrop{224},
                                   kPhotoNormalize};
  const auto batches_of = [&](const ImageDataset& images, OnCorruptImage policy) {
    Loader loader(images, EvaluationSampler(images.size(), 0, 1), evaluation,
                  {.batch_size = 6, .on_corrupt_image = policy});
    return read_epoch(loader, 0);
  };
  const CacheImagesOptions cache{.max_bytes = 1 << 20};
  for (const ImageDataset& images : {dataset, cache_images(dataset, cache)}) {
    EXPECT_THAT(message_of<DataError>([&] { batches_of(images, OnCorruptImage::kStop); }),
                AllOf(HasSubstr("a/3.png: resizing an image of 900x1 makes 3x230400x256"),
                      HasSubstr("remove it")));
  }
  const CapturedLog log;
  const std::vector<Batch> batches = batches_of(dataset, OnCorruptImage::kSkip);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].size, 5);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("a/3.png: resizing an image of 900x1")));
}

}  // namespace
}  // namespace lockstep::testing_support
