#include <lockstep/formats/jpeg.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/core/error.h>
#include <lockstep/core/file.h>
#include <lockstep/core/philox.h>
#include <tests/formats/jpeg_bytes.h>
#include <tests/support/messages.h>
#include <tests/support/real_data.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

using Pixels = std::vector<std::uint8_t>;

ImageRegion at_scale(const ImageHeader& header, int eighths) {
  return {0, 0, detail::jpeg_side(header.height, eighths),
          detail::jpeg_side(header.width, eighths)};
}

Pixels decode(detail::JpegDecoder& decoder, const ImageRegion& region, int eighths = 8) {
  Pixels pixels(rgb_bytes(region));
  decoder.decode(region, eighths, pixels);
  return pixels;
}

Pixels decode_whole_jpeg(const std::string& file, const ImageDecoderOptions& options = {}) {
  detail::JpegDecoder decoder(options);
  return decode(decoder, whole(decoder.open(as_bytes(file), "x.jpg")));
}

Pixels cut(const Pixels& image, std::int64_t image_width, const ImageRegion& region) {
  Pixels result;
  for (std::int64_t y = region.top; y < region.top + region.height; ++y) {
    const auto row = image.begin() + 3 * (y * image_width + region.left);
    result.insert(result.end(), row, row + 3 * region.width);
  }
  return result;
}

ImageRegion random_region(PhiloxStream& random, std::int64_t width, std::int64_t height) {
  ImageRegion region;
  const auto below = [&](std::int64_t bound) {
    return std::int64_t{random.below(static_cast<std::uint32_t>(bound))};
  };
  region.width = 1 + below(width);
  region.height = 1 + below(height);
  region.left = below(width - region.width + 1);
  region.top = below(height - region.height + 1);
  return region;
}

// How many of `regions` random regions at this scale differ from that part of the whole image.
int wrong_regions(detail::JpegDecoder& decoder, const ImageHeader& header, int eighths,
                  int regions) {
  const ImageRegion all = at_scale(header, eighths);
  const Pixels image = decode(decoder, all, eighths);
  int wrong = 0;
  for (int i = 0; i < regions; ++i) {
    PhiloxStream random(11, static_cast<std::uint32_t>(eighths), static_cast<std::uint64_t>(i));
    const ImageRegion region = random_region(random, all.width, all.height);
    if (decode(decoder, region, eighths) != cut(image, all.width, region)) ++wrong;
  }
  return wrong;
}

TEST(JpegDecoder, ReadsTheHeader) {
  detail::JpegDecoder decoder;
  for (const JpegSpec& kind : jpeg_kinds(37, 53)) {
    const std::string file = encode_jpeg(kind);
    const ImageHeader& header = decoder.open(as_bytes(file), "x.jpg");
    EXPECT_EQ(header.type, ImageType::kJpeg) << kind.name;
    EXPECT_EQ(header.width, 37) << kind.name;
    EXPECT_EQ(header.height, 53) << kind.name;
    const bool grey = kind.colors == JpegColors::kGrey;
    const bool cmyk = kind.colors == JpegColors::kCmyk || kind.colors == JpegColors::kYcck;
    EXPECT_EQ(header.channels, grey ? 1 : cmyk ? 4 : 3) << kind.name;
  }
}

// The inks of Adobe's inverted CMYK over white, with PIL's rounding.
Pixels rgb_of_cmyk(const Pixels& cmyk) {
  Pixels rgb;
  for (std::size_t i = 0; i < cmyk.size(); i += 4) {
    for (int c = 0; c < 3; ++c) {
      const double ink = std::floor((255 - cmyk[i + c]) * cmyk[i + 3] / 255.0 + 0.5);
      rgb.push_back(static_cast<std::uint8_t>(cmyk[i + 3] - ink));
    }
  }
  return rgb;
}

TEST(JpegDecoder, TheWholeIsWhatLibjpegGivesAtEveryScale) {
  detail::JpegDecoder decoder;
  constexpr std::pair<int, int> kSizes[] = {{1, 1}, {2, 3}, {5, 1}, {16, 16}, {37, 53}, {150, 97}};
  for (const auto& [width, height] : kSizes) {
    for (const JpegSpec& kind : jpeg_kinds(width, height)) {
      const std::string file = encode_jpeg(kind);
      const ImageHeader& header = decoder.open(as_bytes(file), "x.jpg");
      for (int eighths = 1; eighths <= 8; ++eighths) {
        Pixels expected = plain_libjpeg(file, eighths);
        if (header.channels == 4) expected = rgb_of_cmyk(expected);
        EXPECT_EQ(decode(decoder, at_scale(header, eighths), eighths), expected)
            << kind.name << ", " << width << "x" << height << ", " << eighths << "/8";
      }
    }
  }
}

TEST(JpegDecoder, ARegionIsThatPartOfTheWhole) {
  detail::JpegDecoder decoder;
  constexpr std::pair<int, int> kSizes[] = {{3, 70}, {70, 3}, {16, 32}, {131, 97}};
  for (const auto& [width, height] : kSizes) {
    for (const JpegSpec& kind : jpeg_kinds(width, height)) {
      const std::string file = encode_jpeg(kind);
      const ImageHeader& header = decoder.open(as_bytes(file), "x.jpg");
      for (int eighths = 1; eighths <= 8; ++eighths) {
        EXPECT_EQ(wrong_regions(decoder, header, eighths, 25), 0)
            << kind.name << ", " << width << "x" << height << ", " << eighths << "/8";
      }
    }
  }
}

std::vector<std::filesystem::path> trashnet(int every) {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = real_data("trashnet").value();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".jpg") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::filesystem::path> chosen;
  for (std::size_t i = 0; i < files.size(); i += static_cast<std::size_t>(every)) {
    chosen.push_back(files[i]);
  }
  return chosen;
}

TEST(JpegDecoder, RegionsOfPhotographsArePartsOfTheWhole) {
  LOCKSTEP_SKIP_WITHOUT("trashnet");
  detail::JpegDecoder decoder;
  int index = 0;
  for (const auto& path : trashnet(50)) {
    const MappedFile file(path);
    const ImageHeader header = decoder.open(file.bytes(), path.string());
    EXPECT_EQ(wrong_regions(decoder, header, 8, 20), 0) << path;
    // Makes the same photograph with different chroma.
    const std::vector<JpegSpec> kinds = jpeg_kinds(header.width, header.height);
    const JpegSpec& kind = kinds[static_cast<std::size_t>(index++) % 6];
    const std::string again = encode_jpeg(kind, decode(decoder, whole(header)));
    EXPECT_EQ(wrong_regions(decoder, decoder.open(as_bytes(again), "x.jpg"), 8, 20), 0)
        << path << " as " << kind.name;
  }
}

TEST(JpegDecoder, AReducedPhotographIsNearTheMeanOfItsPixels) {
  LOCKSTEP_SKIP_WITHOUT("trashnet");
  detail::JpegDecoder decoder;
  for (const int eighths : {4, 2, 1}) {
    const int block = 8 / eighths;
    double difference = 0;
    double values = 0;
    for (const auto& path : trashnet(25)) {
      const MappedFile file(path);
      const ImageHeader header = decoder.open(file.bytes(), path.string());
      const Pixels full = decode(decoder, whole(header));
      const ImageRegion inside = {0, 0, header.height / block, header.width / block};
      const Pixels reduced = decode(decoder, inside, eighths);
      for (std::size_t i = 0; i < reduced.size(); ++i) {
        const int x = static_cast<int>(i) / 3 % (header.width / block);
        const int y = static_cast<int>(i) / 3 / (header.width / block);
        int sum = 0;
        for (int j = 0; j < block * block; ++j) {
          const int from = (y * block + j / block) * header.width + x * block + j % block;
          sum += full[static_cast<std::size_t>(3 * from + static_cast<int>(i) % 3)];
        }
        difference += std::abs(reduced[i] - static_cast<double>(sum) / (block * block));
      }
      values += static_cast<double>(reduced.size());
    }
    RecordProperty("mean_difference_" + std::to_string(eighths),
                   std::to_string(difference / values));
    EXPECT_LT(difference / values, 0.5) << eighths << "/8";
  }
}

struct Damage {
  const char* name;
  std::string file;
  const char* message;
};

std::string replaced(std::string file, std::string_view from, std::string_view to) {
  const std::size_t at = file.find(from);
  EXPECT_NE(at, std::string::npos);
  return file.replace(at, from.size(), to);
}

std::vector<Damage> damaged_files() {
  const std::string right = encode_jpeg({.width = 64, .height = 48});
  const std::string progressive = encode_jpeg({.width = 64, .height = 48, .progressive = true});
  const std::string restarts = encode_jpeg({.width = 64, .height = 48, .restarts = true});
  const std::size_t half = right.size() / 2;
  using std::string_literals::operator""s;
  const std::string frame = "\xff\xc0\x00\x11\x08\x00\x30\x00\x40\x03"s;  // 8 bits, 48 x 64, 3
  const auto with_frame = [&](std::string_view changed) { return replaced(right, frame, changed); };
  return {
      {"empty", "", "Empty input file"},
      {"text", "GIF89a, not a JPEG", "Not a JPEG file: starts with 0x47 0x49"},
      {"start only", "\xff\xd8", "Premature end of JPEG file"},
      {"no image", "\xff\xd8\xff\xd9", "JPEG datastream contains no image"},
      {"header cut", right.substr(0, 200), "Premature end of JPEG file"},
      {"half", right.substr(0, half), "Premature end of JPEG file"},
      {"half, progressive", progressive.substr(0, progressive.size() / 2),
       "Premature end of JPEG file"},
      {"no end marker", right.substr(0, right.size() - 2), "Premature end of JPEG file"},
      {"ended early", right.substr(0, half) + "\xff\xd9",
       "Corrupt JPEG data: premature end of data segment"},
      {"a hole", right.substr(0, half) + right.substr(half + 40), "Corrupt JPEG data"},
      {"more data", right.substr(0, right.size() - 2) + "moredata" + "\xff\xd9",
       "extraneous bytes before marker 0xd9"},
      {"no restart marker", replaced(restarts, "\xff\xd1", "\xff\xd3"), "Corrupt JPEG data"},
      {"12 bits", with_frame("\xff\xc0\x00\x11\x0c\x00\x30\x00\x40\x03"s),
       "Unsupported JPEG data precision 12"},
      {"lossless", with_frame("\xff\xc3\x00\x11\x08\x00\x30\x00\x40\x03"s),
       "Unsupported JPEG process: SOF type 0xc3"},
      {"no columns", with_frame("\xff\xc0\x00\x11\x08\x00\x30\x00\x00\x03"s),
       "Empty JPEG image (DNL not supported)"},
      {"no such table",
       replaced(right, "\x03\x01\x00\x02\x11\x03\x11"s, "\x03\x01\x22\x02\x11\x03\x11"s),
       "Huffman table 0x02 was not defined"},
      {"a bomb", with_frame("\xff\xc0\x00\x11\x08\x20\x00\x20\x00\x03"s),
       "damaged or truncated image (claims 8192x8192 pixels, which"},
      {"too large", with_frame("\xff\xc0\x00\x11\x08\xff\x00\xff\x00\x03"s),
       "an image of 65280x65280 has 4261478400 pixels, at most 89478485 are allowed"},
  };
}

TEST(JpegDecoder, NamesTheFileAndWhatIsWrongWithIt) {
  ::testing::internal::CaptureStderr();
  for (const Damage& damage : damaged_files()) {
    EXPECT_THAT(message_of<DataError>([&] { decode_whole_jpeg(damage.file); }),
                AllOf(StartsWith("x.jpg: "), HasSubstr(damage.message)))
        << damage.name;
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  const std::string half = encode_jpeg({.width = 64, .height = 48}).substr(0, 700);
  EXPECT_THAT(message_of<DataError>([&] { decode_whole_jpeg(half); }),
              MatchesRegex("x.jpg: cannot decode JPEG: Premature end of JPEG file "
                           "\\(near byte [67][0-9][0-9] of 700\\)"));
}

TEST(JpegDecoder, RefusesTwoChannels) {
  // JPEG defines no grey with alpha: a frame and a scan with two of the three components.
  using std::string_literals::operator""s;
  std::string file = encode_jpeg({.width = 8, .height = 8, .horizontal = 1, .vertical = 1});
  file = replaced(file, "\xff\xc0\x00\x11\x08\x00\x08\x00\x08\x03"s,
                  "\xff\xc0\x00\x0e\x08\x00\x08\x00\x08\x02"s);
  const std::size_t third = file.find("\x03\x11\x01"s);
  ASSERT_NE(third, std::string::npos);
  file.erase(third, 3);
  file = replaced(file, "\xff\xda\x00\x0c\x03"s, "\xff\xda\x00\x0a\x02"s);
  file = replaced(file, "\x03\x11\x00\x3f"s, "\x00\x3f"s);
  EXPECT_EQ(
      message_of<DataError>([&] { decode_whole_jpeg(file); }),
      "x.jpg: cannot decode JPEG: 2 channels of unknown meaning, expected grey, colour or CMYK");
}

TEST(JpegDecoder, DecodesOnAfterAnError) {
  const std::string right = encode_jpeg({.width = 64, .height = 160});
  const Pixels expected = plain_libjpeg(right);
  detail::JpegDecoder decoder;
  for (const Damage& damage : damaged_files()) {
    EXPECT_THROW(decode(decoder, whole(decoder.open(as_bytes(damage.file), "x"))), DataError);
    EXPECT_EQ(decode(decoder, whole(decoder.open(as_bytes(right), "y"))), expected) << damage.name;
  }
  // The header is valid and the data are not: the second attempt reads both again.
  const std::string half = right.substr(0, right.size() / 2);
  const ImageHeader header = decoder.open(as_bytes(half), "x");
  EXPECT_THROW(decode(decoder, whole(header)), DataError);
  EXPECT_THROW(decode(decoder, whole(header)), DataError);
  EXPECT_EQ(decode(decoder, {0, 0, 8, 64}), cut(expected, 64, {0, 0, 8, 64}))
      << "what lies above the damage can be read";
}

TEST(JpegDecoder, TheTablesOfOneImageDoNotServeTheNext) {
  const std::string right = encode_jpeg({.width = 64, .height = 48});
  const std::string bare = replaced(right, "\xff\xdb", "\xff\xfe");  // tables become comments
  detail::JpegDecoder decoder;
  decode(decoder, whole(decoder.open(as_bytes(right), "x.jpg")));
  EXPECT_THAT(
      message_of<DataError>([&] { decode(decoder, whole(decoder.open(as_bytes(bare), "y.jpg"))); }),
      StartsWith("y.jpg: cannot decode JPEG: Quantization table 0x00 was not defined"));
}

TEST(JpegDecoder, ToleratesDamageOnRequest) {
  const std::string right = encode_jpeg({.width = 64, .height = 48});
  const std::string half = right.substr(0, right.size() / 2);
  EXPECT_EQ(decode_whole_jpeg(half, {.tolerate_damage = true}), plain_libjpeg(half));
  EXPECT_THROW(decode_whole_jpeg(right.substr(0, 200), {.tolerate_damage = true}), DataError)
      << "without a header there is nothing to show";
}

TEST(JpegDecoder, StrayBytesInTheHeaderHarmNobody) {
  const std::string right = encode_jpeg({.width = 64, .height = 48});
  std::string stray = right;
  stray.insert(20, "stray");  // between JFIF's marker and the tables
  EXPECT_EQ(decode_whole_jpeg(stray), plain_libjpeg(right));
}

TEST(JpegDecoder, ScansAreLimited) {
  const JpegSpec spec = {.width = 64, .height = 48, .progressive = true};
  const std::string right = encode_jpeg(spec);
  const std::size_t last = right.rfind("\xff\xda");
  ASSERT_NE(last, std::string::npos);
  const std::string scan = right.substr(last, right.size() - 2 - last);
  std::string many = right.substr(0, right.size() - 2);
  for (int i = 0; i < 200; ++i) many += scan;
  many += "\xff\xd9";
  // A repeated scan is also damage, so without tolerance that error comes first.
  EXPECT_THAT(message_of<DataError>([&] { decode_whole_jpeg(many, {.tolerate_damage = true}); }),
              StartsWith("x.jpg: cannot decode JPEG: more than 100 scans (near byte "));
  EXPECT_THROW(decode_whole_jpeg(many), DataError);
}

TEST(JpegDecoder, MemoryIsLimited) {
  const std::string small = encode_jpeg({.width = 64, .height = 48});
  constexpr std::int64_t kPixels = 64 * 48;
  EXPECT_NO_THROW(decode_whole_jpeg(small, {.max_image_pixels = kPixels}));
  EXPECT_EQ(
      message_of<DataError>([&] { decode_whole_jpeg(small, {.max_image_pixels = kPixels - 1}); }),
      "x.jpg: an image of 64x48 has 3072 pixels, at most 3071 are allowed; raise "
      "ImageDecoderOptions::max_image_pixels");
  // One column of pixels needs two columns of blocks, with two bytes per coefficient.
  const std::string column = encode_jpeg({.width = 1, .height = 60'000, .progressive = true});
  EXPECT_THAT(
      message_of<DataError>([&] { decode_whole_jpeg(column, {.max_image_pixels = 60'000}); }),
      StartsWith("x.jpg: cannot decode JPEG: needs more memory than is allowed (near byte"));
  EXPECT_NO_THROW(decode_whole_jpeg(column));
}

TEST(JpegDecoder, MisuseIsADefect) {
  const std::string file = encode_jpeg({.width = 64, .height = 48});
  detail::JpegDecoder decoder;
  Pixels pixels(64 * 48 * 3);
  EXPECT_THROW(decoder.decode({0, 0, 48, 64}, 8, pixels), InternalError) << "nothing is open";
  decoder.open(as_bytes(file), "x.jpg");
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;  // twice it overflows
  for (const ImageRegion& region : {ImageRegion{-1, 0, 8, 8},
                                    {0, -1, 8, 8},
                                    {0, 57, 8, 8},
                                    {41, 0, 8, 8},
                                    {0, 0, 0, 8},
                                    {0, 0, 8, 0},
                                    {0, 0, 1, 65},
                                    {0, 0, 49, 1},
                                    {0, kHuge, 1, kHuge}}) {
    EXPECT_THROW(decoder.decode(region, 8, pixels), InternalError)
        << region.left << " " << region.top;
  }
  EXPECT_THROW(decoder.decode({0, 0, 47, 64}, 8, pixels), InternalError) << "room for 48 rows";
  EXPECT_THROW(decoder.decode({0, 0, 48, 64}, 4, pixels), InternalError) << "32x24 at this scale";
  EXPECT_THROW(decoder.decode({0, 0, 48, 64}, 0, pixels), InternalError);
  EXPECT_THROW(decoder.decode({0, 0, 48, 64}, 9, pixels), InternalError);
  decoder.decode({0, 0, 48, 64}, 8, pixels);
  EXPECT_EQ(pixels, plain_libjpeg(file));
}

TEST(JpegDecoder, ThreadsHaveOneEach) {
  const std::string file = encode_jpeg({.width = 64, .height = 48});
  const Pixels expected = plain_libjpeg(file);
  std::vector<Pixels> results(4);
  std::vector<std::thread> threads;
  for (Pixels& result : results) {
    threads.emplace_back([&] {
      detail::JpegDecoder decoder;
      for (int i = 0; i < 20; ++i) {
        result = decode(decoder, whole(decoder.open(as_bytes(file), "x.jpg")));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Pixels& result : results) EXPECT_EQ(result, expected);
}

TEST(JpegScale, IsTheSmallestThatIsLargeEnough) {
  struct Case {
    ImageRegion region;
    int width;
    int height;
    int eighths;
  };
  for (const Case& test : {Case{{0, 0, 224, 224}, 224, 224, 8},
                           {{0, 0, 100, 100}, 224, 224, 8},
                           {{0, 0, 500, 447}, 224, 224, 8},
                           {{0, 0, 448, 448}, 224, 224, 4},
                           {{0, 0, 2000, 895}, 224, 224, 4},
                           {{0, 0, 896, 896}, 224, 224, 2},
                           {{0, 0, 1792, 1792}, 224, 224, 1},
                           {{0, 0, 65'500, 65'500}, 1, 1, 1},
                           {{9, 7, 2000, 448}, 224, 100, 4}}) {
    EXPECT_EQ(detail::jpeg_eighths(test.region, test.width, test.height), test.eighths)
        << test.region.width << "x" << test.region.height;
  }
}

TEST(JpegScale, ARegionIsCoveredAtEveryScale) {
  EXPECT_EQ(detail::jpeg_side(65'500, 8), 65'500);
  EXPECT_EQ(detail::jpeg_side(9, 1), 2);
  for (int eighths = 1; eighths <= 8; ++eighths) {
    PhiloxStream random(5, 0, static_cast<std::uint64_t>(eighths));
    for (int i = 0; i < 100; ++i) {
      const ImageRegion region = random_region(random, 301, 203);
      const ImageRegion reduced = detail::jpeg_region(region, eighths);
      const double pixel = 8.0 / eighths;
      EXPECT_LE(reduced.left * pixel, region.left);
      EXPECT_GT((reduced.left + 1) * pixel, region.left);
      const std::int64_t right = reduced.left + reduced.width;
      EXPECT_GE(right * pixel, region.left + region.width);
      EXPECT_LT((right - 1) * pixel, region.left + region.width);
      const std::int64_t bottom = reduced.top + reduced.height;
      EXPECT_GE(bottom * pixel, region.top + region.height);
      EXPECT_LT((bottom - 1) * pixel, region.top + region.height);
      EXPECT_LE(right, detail::jpeg_side(301, eighths));
      EXPECT_LE(bottom, detail::jpeg_side(203, eighths));
    }
  }
}

}  // namespace
}  // namespace lockstep::testing_support
