#include <lockstep/data/preparation/check_images.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/data/datasets/image_folder.h>
#include <lockstep/data/datasets/packed_images.h>
#include <lockstep/data/preparation/pack_images.h>
#include <lockstep/formats/png.h>
#include <tests/support/captured_log.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Noise, which deflate cannot compress, so that half of the file holds about half of the rows.
std::string noise(int side, std::uint64_t seed) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(3 * side * side));
  PhiloxStream random(seed, 0, 0);
  for (std::uint8_t& value : pixels) value = static_cast<std::uint8_t>(random.below(256));
  return detail::encode_png(pixels, side, side);
}

std::vector<std::uint8_t> pixels_of(const ImageDataset& dataset, std::int64_t index) {
  ImageReader reader;
  dataset.read(index, reader);
  const ImageView image = reader.pixels({0, 0, reader.shape().height, reader.shape().width});
  return {image.pixels, image.pixels + image.shape.elements()};
}

// Eight PNG files: one is cut, one is a WebP file, and one lacks only its last chunk.
class CheckImages : public ::testing::Test {
 protected:
  static constexpr std::int64_t kCut = 2;
  static constexpr std::int64_t kOdd = 5;
  static constexpr std::int64_t kOther = 6;

  CheckImages() {
    using std::string_literals::operator""s;
    for (int i = 0; i < 8; ++i) {
      std::string file = noise(100, static_cast<std::uint64_t>(i));
      if (i == kCut) file.resize(file.size() * 7 / 10);
      if (i == kOdd) file.resize(file.size() - 12);
      if (i == kOther) file = "RIFF\x24\0\0\0WEBPVP8 and so on"s;
      folder.write(str(i < 4 ? "cat/" : "dog/", i, ".png"), file);
    }
  }
  ImageDataset dataset() const { return load_image_folder(folder.path()); }

  TemporaryDirectory folder;
  TemporaryDirectory out;
};

TEST_F(CheckImages, FindsWhatACropMayNotSee) {
  ImageReader reader;
  dataset().read(kCut, reader);
  ASSERT_NO_THROW(reader.pixels({0, 0, 30, 100})) << "a crop of the top accepts the file";
  for (const int threads : {0, 3}) {
    const testing_support::CapturedLog log;
    std::vector<std::int64_t> progress;
    const ImagesCheck check = check_images(
        dataset(),
        {.threads = threads, .progress = [&](std::int64_t done) { progress.push_back(done); }});
    EXPECT_EQ(check.images, 8);
    ASSERT_EQ(check.corrupt.size(), 2U);
    EXPECT_EQ(check.corrupt[0].index, kCut);
    EXPECT_THAT(check.corrupt[0].reason,
                AllOf(HasSubstr("cat/2.png: cannot decode PNG"), HasSubstr("ends too early")));
    EXPECT_EQ(check.corrupt[1].index, kOther);
    EXPECT_THAT(check.corrupt[1].reason,
                HasSubstr("dog/6.png: is a WebP image, expected JPEG or PNG"));
    ASSERT_EQ(check.odd.size(), 1U);
    EXPECT_EQ(check.odd[0].index, kOdd);
    EXPECT_THAT(check.odd[0].reason, HasSubstr("dog/5.png: the file lacks its end"));
    EXPECT_THAT(check.sound(), ElementsAre(0, 1, 3, 4, 5, 7));
    EXPECT_THAT(progress, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
    EXPECT_THAT(log.lines(), IsEmpty()) << "the caller reports";
  }
}

// Such images can be decoded, but the usual evaluation cannot resize them.
TEST(CheckImagesOfAnyShape, NamesThoseThatAreTooNarrow) {
  const std::pair<int, int> sizes[] = {{1, 256}, {1, 257}, {300, 1}, {2, 512}, {2, 514}, {9, 9}};
  TemporaryDirectory folder;
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    const auto [width, height] = sizes[i];
    const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(3 * width * height), 100);
    folder.write(str("a/", i, ".png"), detail::encode_png(pixels, width, height));
  }
  const ImagesCheck check = check_images(load_image_folder(folder.path()));
  EXPECT_THAT(check.corrupt, IsEmpty());
  ASSERT_EQ(check.odd.size(), 3U);
  EXPECT_EQ(check.odd[0].index, 1);
  EXPECT_THAT(check.odd[0].reason,
              AllOf(HasSubstr("a/1.png: resizing an image of 257x1 makes 3x65792x256, expected at "
                              "most 65536 pixels a side"),
                    HasSubstr("crop it first, or remove it")));
  EXPECT_THAT(check.odd[1].reason, HasSubstr("a/2.png: resizing an image of 1x300"));
  EXPECT_THAT(check.odd[2].reason, HasSubstr("a/4.png: resizing an image of 514x2"));
}

TEST_F(CheckImages, WhatProgressThrowsEndsTheCheck) {
  for (const int threads : {0, 2}) {
    EXPECT_THROW(check_images(dataset(), {.threads = threads,
                                          .progress =
                                              [](std::int64_t done) {
                                                if (done == 3) throw std::logic_error("stop");
                                              }}),
                 std::logic_error);
  }
  EXPECT_THAT(message_of<ConfigError>([&] { check_images(dataset(), {.threads = -1}); }),
              HasSubstr("check_images: threads must be from 0"));
}

TEST_F(CheckImages, APackLeavesThemOutOnRequest) {
  for (const bool keep_files : {false, true}) {
    std::int64_t checked = 0;
    const PackedSize size =
        pack_images(dataset(), out / "pack",
                    {.keep_files = keep_files,
                     .threads = 2,
                     .on_corrupt_image = OnCorruptImage::kSkip,
                     .progress = {},
                     .check_progress = [&](std::int64_t done) { checked = done; }});
    EXPECT_EQ(checked, 8);
    EXPECT_EQ(size.images, 6);
    ASSERT_EQ(size.skipped.size(), 2U);
    EXPECT_EQ(size.skipped[1].index, kOther);
    const ImageDataset packed = load_packed_images(out / "pack");
    EXPECT_EQ(packed.name(), dataset().name());
    EXPECT_EQ(packed.size(), 6);
    EXPECT_EQ(packed.label(2), 0) << "image 3";
    EXPECT_EQ(packed.label(3), 1);
    EXPECT_THAT(check_images(packed).corrupt, IsEmpty());
    pack_images(subset(dataset(), {0, 1, 3, 4, 5, 7}), out / "right", {.keep_files = keep_files});
    const ImageDataset right = load_packed_images(out / "right");
    for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(pixels_of(packed, i), pixels_of(right, i));
  }
  EXPECT_THROW(pack_images(dataset(), out / "none", {}), DataError);
  EXPECT_THAT(message_of<DataError>([&] {
                pack_images(subset(dataset(), {kCut, kOther}), out / "none",
                            {.on_corrupt_image = OnCorruptImage::kSkip});
              }),
              AllOf(HasSubstr("none of the 2 images"), HasSubstr("cat/2.png: cannot decode")));
  EXPECT_THAT(out.names(), ElementsAre("pack", "right"));
}

// Runs in a separate process, because a process warns only about the first odd file.
TEST_F(CheckImages, AProcessWarnsOfTheFirstOddFile) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read_thrice = [&] {
    const testing_support::CapturedLog log;
    ImageReader reader;
    for (int i = 0; i < 3; ++i) {
      dataset().read(kOdd, reader);
      reader.pixels({0, 0, 100, 100});
    }
    const std::vector<std::string> lines = log.lines();
    for (const std::string& line : lines) fprintf(stderr, "%s\n", line.c_str());
    exit(static_cast<int>(lines.size()));
  };
  EXPECT_EXIT(read_thrice(), ::testing::ExitedWithCode(1),
              "warning: .*dog/5.png: the file lacks its end");
}

}  // namespace
}  // namespace lockstep::testing_support
