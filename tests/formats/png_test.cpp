#include <lockstep/formats/png.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/philox.h>
#include <lockstep/formats/image_decoder.h>
#include <tests/formats/jpeg_bytes.h>
#include <tests/formats/png_bytes.h>
#include <tests/support/data_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Pixels = std::vector<std::uint8_t>;

Pixels decode(detail::PngDecoder& decoder, const ImageRegion& region) {
  Pixels pixels(rgb_bytes(region));
  decoder.decode(region, pixels);
  return pixels;
}

Pixels decode_whole_png(const std::string& file, const ImageDecoderOptions& options = {}) {
  detail::PngDecoder decoder(options);
  return decode(decoder, whole(decoder.open(as_bytes(file), "x.png")));
}

TEST(PngDecoder, ReadsEveryKindAsRgb) {
  detail::PngDecoder decoder;
  constexpr int kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  constexpr std::pair<int, int> kSizes[] = {{1, 1}, {3, 2}, {37, 21}};
  for (const auto& [width, height] : kSizes) {
    for (const PngSpec& kind : png_kinds(width, height)) {
      const PngBytes png = make_png(kind);
      const ImageHeader& header = decoder.open(as_bytes(png.file), "x.png");
      EXPECT_EQ(header.type, ImageType::kPng);
      EXPECT_EQ(header.width, width);
      EXPECT_EQ(header.height, height);
      EXPECT_EQ(header.channels, kChannels[kind.color_type]) << kind.name;
      EXPECT_EQ(decode(decoder, whole(header)), png.rgb)
          << kind.name << (kind.interlaced ? ", interlaced" : "");
    }
  }
}

TEST(PngDecoder, ReadsTheWidestAndTheHighestImages) {
  for (const auto& [width, height] : {std::pair(65'535, 1), std::pair(1, 65'535)}) {
    const PngBytes png = make_png({.width = width, .height = height});
    EXPECT_TRUE(decode_whole_png(png.file) == png.rgb) << width << " x " << height;
  }
}

TEST(PngDecoder, ARegionIsThatPartOfTheWhole) {
  detail::PngDecoder decoder;
  for (const PngSpec& kind : png_kinds(37, 21)) {
    const PngBytes png = make_png(kind);
    decoder.open(as_bytes(png.file), "x.png");
    for (const ImageRegion& region : {ImageRegion{0, 0, 1, 1},
                                      {20, 36, 1, 1},
                                      {3, 5, 11, 17},
                                      {0, 0, 20, 37},
                                      {1, 0, 20, 37}}) {
      Pixels expected;
      for (std::int64_t y = region.top; y < region.top + region.height; ++y) {
        const auto row = png.rgb.begin() + 3 * (y * 37 + region.left);
        expected.insert(expected.end(), row, row + 3 * region.width);
      }
      EXPECT_EQ(decode(decoder, region), expected) << kind.name << ", row " << region.top;
    }
  }
}

TEST(PngDecoder, NamesTheFileAndWhatIsWrongWithIt) {
  const std::string right = make_png({.width = 37, .height = 21}).file;
  const std::size_t data = right.find("IDAT");
  const auto with = [&](std::size_t at, char flipped) {
    std::string file = right;
    file[at] = static_cast<char>(file[at] ^ flipped);
    return file;
  };
  const std::string magic = right.substr(0, 8);
  // libpng reads the second chunk when it has all pixels, and only warns of it.
  const std::size_t end = right.size() - 12;
  const std::string sum_apart =
      right.substr(0, data - 4) + png_chunk("IDAT", right.substr(data + 4, end - 8 - (data + 4))) +
      png_chunk("IDAT", with(end - 5, 1).substr(end - 8, 4)) + right.substr(end);
  const auto with_header = [&](std::uint32_t width, std::uint32_t height) {
    using std::string_literals::operator""s;
    return magic + png_chunk("IHDR", big_endian({width, height}) + "\x08\x02\0\0\0"s) +
           right.substr(33);
  };
  struct Case {
    const char* name;
    std::string file;
    const char* message;
  };
  ::testing::internal::CaptureStderr();
  for (const Case& test : {
           Case{"empty", "", "the file ends too early (near byte 0 of 0)"},
           {"text", "GIF89a, not a PNG image", "Not a PNG file"},
           {"magic only", magic, "the file ends too early (near byte 8 of 8)"},
           {"no data", right.substr(0, 33) + right.substr(right.size() - 12), "IEND: out of place"},
           {"half", right.substr(0, right.size() / 2), "the file ends too early"},
           {"no end of the data", right.substr(0, right.size() - 13), "the file ends too early"},
           {"a wrong header", with(16, 1), "IHDR: CRC error"},
           {"a wrong checksum", with(right.size() - 13, 1), "IDAT: CRC error"},
           {"a wrong sum of the data", sum_apart, "IDAT: incorrect data check"},
           {"wrong data", with(data + 100, 1), ""},
           {"no such zlib", with(data + 4, 7), "IDAT: "},
           {"no columns", with_header(0, 21), "Invalid IHDR data"},
           {"more rows than data", with_header(37, 22), "Not enough image data"},
           {"too wide", with_header(1 << 21, 1), "Invalid IHDR data"},
           {"a pixel too wide", with_header(65'536, 1), "Invalid IHDR data"},
           {"a pixel too high", with_header(1, 65'536), "Invalid IHDR data"},
           {"a bomb", with_header(8192, 8192), "claims 8192x8192 pixels, which"},
           {"too large", with_header(65'535, 65'535), "at most 89478485 are allowed"},
       }) {
    EXPECT_THAT(message_of<DataError>([&] { decode_whole_png(test.file); }),
                AllOf(StartsWith("x.png: "), HasSubstr(test.message)))
        << test.name;
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// As in torchvision and PIL, all pixels are read although the file is malformed.
TEST(PngDecoder, ReadsFilesWithoutAnEndOrWithSurplusData) {
  constexpr const char* kNoEnd = "x.png: the file lacks its end (the chunk IEND)";
  constexpr const char* kSurplus = "x.png: the file holds more image data than its pixels";
  for (const bool interlaced : {false, true}) {
    const PngBytes right = make_png({.width = 37, .height = 21, .interlaced = interlaced});
    const std::size_t end = right.file.size() - 12;  // end of the image data
    std::string fewer_rows = right.file;
    using std::string_literals::operator""s;
    fewer_rows.replace(8, 25, png_chunk("IHDR", big_endian({37, 20}) + "\x08\x02\0\0\0"s));
    std::string more_chunks = right.file;
    more_chunks.insert(end, png_chunk("IDAT", "more"));
    const std::size_t data = right.file.find("IDAT") + 4;
    const std::string more_data =
        right.file.substr(0, data - 8) +
        png_chunk("IDAT", right.file.substr(data, end - 4 - data) + "more") +
        right.file.substr(end);
    struct Case {
      const char* name;
      std::string file;
      const char* remark;
    };
    for (const Case& test : {
             Case{"right", right.file, ""},
             {"no last chunk", right.file.substr(0, end), kNoEnd},
             {"half a last chunk", right.file.substr(0, end + 6), kNoEnd},
             {"bytes more in the chunk", more_data, kSurplus},
             {"a chunk more", more_chunks, ""},
             {"bytes after the end", right.file + "bytes", ""},
         }) {
      detail::PngDecoder decoder;
      const ImageHeader& header = decoder.open(as_bytes(test.file), "x.png");
      EXPECT_EQ(decode(decoder, whole(header)), right.rgb) << test.name;
      EXPECT_EQ(decoder.remark(), test.remark) << test.name;
      decode(decoder, {0, 0, 20, 37});
      if (interlaced) continue;  // always decoded whole
      EXPECT_EQ(decoder.remark(), "") << test.name << ": its end is not looked at";
    }
    if (interlaced) continue;  // with one row fewer, interlacing would change
    detail::PngDecoder decoder;
    const Pixels rows = decode(decoder, whole(decoder.open(as_bytes(fewer_rows), "x.png")));
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), right.rgb.begin()));
    EXPECT_EQ(decoder.remark(), kSurplus);
  }
}

TEST(PngDecoder, PassesOverWhatIsNoPixel) {
  // An invalid colour profile, a text, a transparent colour, and an unknown chunk.
  const PngBytes right = make_png({.width = 37, .height = 21});
  std::string file = right.file;
  file.insert(33, png_chunk("iCCP", "profile") + png_chunk("tEXt", pattern(100'000)) +
                      png_chunk("tRNS", "wrong") + png_chunk("loCk", "step"));
  EXPECT_EQ(decode_whole_png(file), right.rgb);
}

TEST(PngDecoder, DecodesOnAfterAnError) {
  const PngBytes right = make_png({.width = 37, .height = 21});
  const std::string half = right.file.substr(0, right.file.size() / 2);
  detail::PngDecoder decoder;
  const ImageHeader header = decoder.open(as_bytes(half), "x.png");
  EXPECT_THROW(decode(decoder, whole(header)), DataError);
  EXPECT_THROW(decode(decoder, whole(header)), DataError);
  EXPECT_THROW(decoder.open(as_bytes("no PNG at all"), "x.png"), DataError);
  EXPECT_THROW(decode(decoder, whole(header)), InternalError) << "nothing is open";
  EXPECT_EQ(decode(decoder, whole(decoder.open(as_bytes(right.file), "y.png"))), right.rgb);
}

// If values were clipped at 255, as in PIL, all but the darkest of 256 levels would be white.
TEST(PngDecoder, ShowsGreyOf16BitsByItsHighByteWherePilSaturates) {
  const PngBytes png = make_png({.width = 37, .height = 21, .color_type = 0, .depth = 16});
  const Pixels pixels = decode_whole_png(png.file);
  EXPECT_EQ(pixels, png.rgb);
  EXPECT_GT(std::set<std::uint8_t>(pixels.begin(), pixels.end()).size(), 50U);
  EXPECT_LT(std::count(pixels.begin(), pixels.end(), 255), 37 * 21);
}

// A region must lie within the image, and the memory must have its size. What is refused leaves the
// decoder as it was.
TEST(PngDecoder, TakesOnlyRegionsOfTheImage) {
  const PngBytes png = make_png({.width = 37, .height = 21});
  detail::PngDecoder decoder;
  const ImageHeader header = decoder.open(as_bytes(png.file), "x.png");
  const ImageRegion regions[] = {{-1, 0, 2, 2}, {0, -1, 2, 2}, {0, 0, 0, 2},  {0, 0, 2, 0},
                                 {0, 0, -1, 2}, {0, 0, 2, -1}, {0, 0, 22, 1}, {1, 0, 21, 1},
                                 {20, 0, 2, 1}, {0, 0, 1, 38}, {0, 1, 1, 37}, {0, 36, 1, 2}};
  Pixels pixels(37 * 22 * 3);
  for (const ImageRegion& region : regions) {
    EXPECT_THAT(message_of<InternalError>([&] {
                  const auto bytes = static_cast<std::size_t>(
                      std::max<std::int64_t>(3 * region.height * region.width, 0));
                  decoder.decode(region, std::span(pixels).first(bytes));
                }),
                HasSubstr(str("region of ", region.width, "x", region.height, " at (", region.left,
                              ", ", region.top, ") of an image of 37x21")));
  }
  for (const std::size_t bytes : {2330, 2332}) {
    EXPECT_THAT(message_of<InternalError>(
                    [&] { decoder.decode(whole(header), std::span(pixels).first(bytes)); }),
                HasSubstr(str("got room for ", bytes, " bytes, expected 2331")));
  }
  EXPECT_EQ(decode(decoder, whole(header)), png.rgb);
}

TEST(PngDecoder, TakesImagesUpToALimit) {
  const PngBytes png = make_png({.width = 37, .height = 21});
  EXPECT_EQ(decode_whole_png(png.file, {.max_image_pixels = 37 * 21}), png.rgb);
  EXPECT_EQ(
      message_of<DataError>([&] { decode_whole_png(png.file, {.max_image_pixels = 37 * 21 - 1}); }),
      "x.png: an image of 37x21 has 777 pixels, at most 776 are allowed; raise "
      "ImageDecoderOptions::max_image_pixels");
}

TEST(EncodePng, IsReadBack) {
  const Pixels pixels = picture(37, 21, 3);
  EXPECT_EQ(decode_whole_png(detail::encode_png(pixels, 37, 21)), pixels);
  EXPECT_THAT(message_of<InternalError>([&] { detail::encode_png(pixels, 37, 22); }),
              HasSubstr("got room for 2331 bytes, expected 2442"));
  EXPECT_THAT(message_of<InternalError>([&] { detail::encode_png(pixels, 0, 21); }),
              HasSubstr("region of 0x21 at (0, 0) of an image of 0x21"));
}

TEST(ImageDecoder, TellsTheTypeByItself) {
  const std::string jpeg = encode_jpeg({.width = 64, .height = 48});
  const PngBytes png = make_png({.width = 37, .height = 21});
  detail::ImageDecoder decoder;
  Pixels pixels(37 * 21 * 3);
  EXPECT_THAT(message_of<InternalError>([&] { decoder.decode({0, 0, 21, 37}, 8, pixels); }),
              HasSubstr("decode() without an image"))
      << "nothing is open";

  const ImageHeader png_header = decoder.open(as_bytes(png.file), "x");
  EXPECT_EQ(png_header.type, ImageType::kPng);
  EXPECT_EQ(decoder.eighths(whole(png_header), 1, 1), 8);
  decoder.decode(whole(png_header), 8, pixels);
  EXPECT_EQ(pixels, png.rgb);
  EXPECT_EQ(decoder.remark(), "");
  const std::string no_end = png.file.substr(0, png.file.size() - 12);
  decoder.decode(whole(decoder.open(as_bytes(no_end), "x")), 8, pixels);
  EXPECT_EQ(decoder.remark(), "x: the file lacks its end (the chunk IEND)");
  EXPECT_THAT(message_of<InternalError>(
                  [&] { decoder.decode({0, 0, 11, 19}, 4, std::span(pixels).first(19 * 11 * 3)); }),
              HasSubstr("a PNG at the scale 4/8"));

  const ImageHeader jpeg_header = decoder.open(as_bytes(jpeg), "x");
  EXPECT_EQ(jpeg_header.type, ImageType::kJpeg);
  EXPECT_EQ(decoder.eighths(whole(jpeg_header), 32, 24), 4);
  pixels.resize(32 * 24 * 3);
  decoder.decode({0, 0, 24, 32}, 4, pixels);
  EXPECT_EQ(pixels, plain_libjpeg(jpeg, 4));
  EXPECT_EQ(decoder.remark(), "") << "that was the other image";

  using std::string_literals::operator""s;
  const std::pair<std::string, const char*> others[] = {
      {"GIF87a...", "is a GIF image, expected JPEG or PNG; convert it"},
      {"GIF89a...", "is a GIF image, expected JPEG or PNG; convert it"},
      {"RIFF\x24\0\0\0WEBPVP8 "s, "is a WebP image, expected JPEG or PNG; convert it"},
      {"BM\x36\0\0\0"s, "is a BMP image, expected JPEG or PNG; convert it"},
      {"II*\0\x08\0\0\0"s, "is a TIFF image, expected JPEG or PNG; convert it"},
      {"MM\0*\0\0\0\x08"s, "is a TIFF image, expected JPEG or PNG; convert it"},
      {"\0\0\0\x1c"
       "ftypavif"s,
       "is an AVIF image, expected JPEG or PNG; convert it"},
      {"\0\0\0\x18"
       "ftypheic"s,
       "is a HEIF image, expected JPEG or PNG; convert it"},
      {"\0\0\0\x18"
       "ftypmif1"s,
       "is a HEIF image, expected JPEG or PNG; convert it"},
      {"RIFF\x24\0\0\0WAVE"s, "neither JPEG nor PNG, it begins with 52 49 46 46 24 00 00 00"},
      {"WEBP", "neither JPEG nor PNG, it begins with 57 45 42 50"},
  };
  for (const auto& [file, message] : others) {
    EXPECT_EQ(message_of<DataError>([&] { decoder.open(as_bytes(file), "x.png"); }),
              "x.png: " + std::string(message));
  }
  EXPECT_EQ(message_of<DataError>([&] { decoder.open({}, "x.gif"); }),
            "x.gif: expected a JPEG or PNG image, the file is empty");
  EXPECT_THROW(decoder.decode({0, 0, 24, 32}, 4, pixels), InternalError)
      << "the last open() failed";
}

}  // namespace
}  // namespace lockstep::testing_support
