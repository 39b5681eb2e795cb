#include <lockstep/data/images/image_reader.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/formats/png.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

const std::vector<std::uint8_t>& small_pixels() {
  static const std::string text = pattern(std::size_t{3} * 4 * 5);
  static const std::vector<std::uint8_t> pixels(text.begin(), text.end());
  return pixels;
}

// A file of 4 rows and 5 columns with these pixels.
std::string small_file() { return detail::encode_png(small_pixels(), /*width=*/5, /*height=*/4); }

TEST(ImageReader, HasNoImageUntilThereIsAPixel) {
  ImageReader reader;
  EXPECT_FALSE(reader.has_image());
  const ImageShape empty[] = {{0, 4, 5}, {3, 0, 5}, {3, 4, 0}};
  for (const ImageShape& shape : empty) {
    reader.show(ImageView::planar(small_pixels().data(), shape));
    EXPECT_FALSE(reader.has_image());
  }
  reader.show(ImageView::planar(nullptr, {3, 4, 5}));
  EXPECT_FALSE(reader.has_image());
  reader.show(ImageView::planar(small_pixels().data(), {3, 4, 5}));
  EXPECT_TRUE(reader.has_image());
  reader.clear();
  EXPECT_FALSE(reader.has_image());
  EXPECT_EQ(reader.shape(), ImageShape{});
}

// Each image replaces the one before, whether that was pixels or a file.
TEST(ImageReader, TakesPixelsAndFilesInTurn) {
  const std::string file = small_file();
  ImageReader reader;
  for (int round = 0; round < 2; ++round) {
    reader.open(as_bytes(file), "small.png");
    EXPECT_TRUE(reader.has_image());
    EXPECT_FALSE(reader.is_decoded());
    EXPECT_EQ(reader.shape(), (ImageShape{3, 4, 5}));
    EXPECT_EQ(reader.name(), "small.png");
    EXPECT_EQ(reader.file().data(), as_bytes(file).data());
    EXPECT_EQ(reader.file().size(), file.size());
    const ImageView part = reader.pixels({1, 2, 2, 3});
    EXPECT_EQ(part.shape, (ImageShape{3, 2, 3}));
    for (std::int64_t y = 0; y < 2; ++y) {
      for (std::int64_t x = 0; x < 3; ++x) {
        for (std::int64_t c = 0; c < 3; ++c) {
          EXPECT_EQ(
              part.pixels[c * part.channel_stride + y * part.row_stride + x * part.pixel_stride],
              small_pixels()[static_cast<std::size_t>(((y + 1) * 5 + x + 2) * 3 + c)]);
        }
      }
    }

    reader.show(ImageView::planar(small_pixels().data(), {1, 6, 10}));
    EXPECT_TRUE(reader.is_decoded());
    EXPECT_TRUE(reader.file().empty());
    EXPECT_EQ(reader.name(), "small.png") << "the last file, for messages";
    EXPECT_EQ(reader.remark(), "");
    EXPECT_EQ(reader.shape(), (ImageShape{1, 6, 10}));
    const ImageView shown = reader.pixels({2, 3, 4, 5});
    EXPECT_EQ(shown.pixels, small_pixels().data() + 23) << "no copy";
    EXPECT_EQ(shown.shape, (ImageShape{1, 4, 5}));
    const ReducedView whole = reader.reduced({2, 3, 4, 5}, 1, 1);
    EXPECT_EQ(whole.factor, 1);
    EXPECT_EQ(whole.view.pixels, shown.pixels);
    EXPECT_EQ(whole.part.top, 0);
    EXPECT_EQ(whole.part.left, 0);
    EXPECT_EQ(whole.part.height, 4);
    EXPECT_EQ(whole.part.width, 5);
  }
  reader.clear();
  EXPECT_EQ(reader.name(), "");
}

// The limit belongs to the file that is opened, not to the first one.
TEST(ImageReader, HasALimitOfPixelsForEachFile) {
  const TemporaryDirectory folder;
  folder.write("small.png", small_file());
  const auto path = folder / "small.png";
  ImageReader reader;
  for (int round = 0; round < 2; ++round) {
    EXPECT_NO_THROW(reader.open(path, ImageReader::Decoding::kExact, 20));
    EXPECT_EQ(reader.name(), path.string());
    EXPECT_THAT(
        message_of<DataError>([&] { reader.open(path, ImageReader::Decoding::kExact, 19); }),
        ::testing::HasSubstr(path.string()));
  }
  EXPECT_NO_THROW(reader.open(path));
  EXPECT_THROW(reader.open(folder / "absent.png"), DataError);
}

// The caller's memory is that of the reader, and is used again.
TEST(ImageReader, LendsMemoryForTheContentOfAFile) {
  const std::string file = small_file();
  ImageReader reader;
  const std::span<std::byte> memory = reader.memory(file.size());
  ASSERT_EQ(memory.size(), file.size());
  const auto bytes = as_bytes(file);
  std::copy(bytes.begin(), bytes.end(), memory.begin());
  reader.open(memory, "lent.png");
  EXPECT_EQ(reader.pixels({0, 0, 4, 5}).pixels[0], small_pixels()[0]);
  EXPECT_EQ(reader.memory(10).data(), memory.data());
  EXPECT_EQ(reader.memory(10).size(), 10U);
}

}  // namespace
}  // namespace lockstep::testing_support
