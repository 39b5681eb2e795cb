#include <lockstep/data/augment/recolor.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <tests/support/data_bytes.h>

namespace lockstep::testing_support {
namespace {

using Bytes = std::vector<std::uint8_t>;

TEST(ColorPlanes, HoldEveryPixelOfAnyLayout) {
  // Vectors have up to 16 bytes, so the widths lie around multiples of 16.
  for (const std::int64_t width : {1, 2, 15, 16, 17, 31, 32, 33, 64}) {
    for (const std::int64_t height : {1, 2, 3}) {
      // Rows are longer than what is shown of them.
      const std::int64_t row = 4 * width + 5;
      const std::string text = pattern(static_cast<std::size_t>(4 * height * row), 53);
      const Bytes bytes(text.begin(), text.end());
      const std::uint8_t* last_of_row = bytes.data() + 4 * (width - 1);
      const std::uint8_t* start = bytes.data();
      const ImageView views[] = {
          {start, {1, height, width}, 0, row, 1},
          {start, {1, height, width}, 1, row, 3},
          {start, {2, height, width}, 1, row, 2},
          {start, {3, height, width}, height * row, row, 1},  // planes
          {start, {3, height, width}, 1, row, 3},             // interleaved
          {start, {3, height, width}, 1, row, 4},             // three of four channels
          {start, {3, height, width}, 0, row, 1},             // one plane for all channels
          {start, {3, height, width}, 0, row, 3},
          {start, {4, height, width}, 1, row, 4},
          {last_of_row, {3, height, width}, 1, row, -4}};  // mirrored
      for (const ImageView& view : views) {
        std::vector<std::uint8_t> memory;
        const data::ColorPlanes planes = data::copy_planes(view, memory);
        EXPECT_EQ(planes.bytes, memory.data());
        EXPECT_EQ(planes.channels, view.shape.channels);
        EXPECT_EQ(planes.pixels, height * width);
        EXPECT_EQ(planes.stride, (height * width + 63) / 64 * 64);
        ASSERT_EQ(memory.size(), static_cast<std::size_t>(planes.channels * planes.stride));
        for (std::int64_t i = 0; i < view.shape.elements(); ++i) {
          const std::int64_t c = i / planes.pixels;
          const std::int64_t y = i % planes.pixels / width;
          const std::int64_t x = i % width;
          ASSERT_EQ(
              memory[static_cast<std::size_t>(c * planes.stride + i % planes.pixels)],
              view.pixels[c * view.channel_stride + y * view.row_stride + x * view.pixel_stride])
              << height << "x" << width << ", strides " << view.channel_stride << " and "
              << view.pixel_stride << ", channel " << c << ", row " << y << ", column " << x;
        }
      }
    }
  }
}

TEST(ColorPlanes, SumTheGreysOfAnyNumberOfPixels) {
  for (const std::int64_t pixels : {1, 3, 16, 17, 63, 64, (1 << 20) - 1, 1 << 20, (1 << 21) + 37}) {
    const std::int64_t stride = (pixels + 63) / 64 * 64;
    Bytes white(static_cast<std::size_t>(stride), 255);
    std::fill(white.begin() + pixels, white.end(), std::uint8_t{77});  // unspecified bytes
    EXPECT_EQ(data::sum_grays({white.data(), 1, pixels, stride}), 255 * pixels);
  }
  Bytes colours(3 * 64, 200);  // 200 red, 100 green and 50 blue
  std::fill(colours.begin() + 64, colours.begin() + 128, std::uint8_t{100});
  std::fill(colours.begin() + 128, colours.end(), std::uint8_t{50});
  // 0.299 * 200 + 0.587 * 100 + 0.114 * 50 = 124.2
  EXPECT_EQ(data::sum_grays({colours.data(), 3, 21, 64}), 21 * 124);
  data::make_gray({colours.data(), 3, 64, 64});
  EXPECT_EQ(Bytes(colours.begin(), colours.begin() + 64), Bytes(64, 124));
  EXPECT_EQ(colours[64], 100) << "only the first plane changes";
  Bytes one(64, 9);
  data::make_gray({one.data(), 1, 64, 64});
  EXPECT_EQ(one, Bytes(64, 9));
}

TEST(ColorPlanes, BlendedBytesAreClampedAndRoundedDown) {
  EXPECT_EQ(data::blend(0, 200, 1.25F), 250);
  EXPECT_EQ(data::blend(0, 200, 1.3F), 255);
  EXPECT_EQ(data::blend(0, 200, 2.0F), 255);
  EXPECT_EQ(data::blend(100, 50, 3.0F), 0) << "-50 is clamped";
  EXPECT_EQ(data::blend(100, 51, 2.0F), 2);
  EXPECT_EQ(data::blend(10, 13, 0.5F), 11) << "11.5 is rounded down";
  EXPECT_EQ(data::blend(10, 13, 0.0F), 10);
  Bytes bytes(128, 13);  // two channels of 64 pixels
  bytes[127] = 255;
  data::blend_planes({bytes.data(), 2, 64, 64}, 10, 0.5F);
  EXPECT_EQ(Bytes(bytes.begin(), bytes.end() - 1), Bytes(127, 11));
  EXPECT_EQ(bytes[127], 132);
}

}  // namespace
}  // namespace lockstep::testing_support
