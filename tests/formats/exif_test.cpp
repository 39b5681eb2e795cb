// Where the orientation of a photograph stands in its file. tests/data/image_folder_test.cpp turns
// photographs by it.
#include <lockstep/formats/exif.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include <tests/support/data_bytes.h>

namespace lockstep::testing_support {
namespace {

constexpr std::uint32_t kShort = 3;

int orientation_of(const std::string& file) {
  return detail::exif_orientation(std::as_bytes(std::span(file)));
}

// A number of two bytes, big-endian.
std::string two_bytes(std::uint32_t value) { return big_endian({value}).substr(2); }

// A directory entry whose value has two bytes.
std::string entry(std::uint32_t tag, std::uint32_t type, std::uint32_t value) {
  return two_bytes(tag) + two_bytes(type) + big_endian({1}) + two_bytes(value) + two_bytes(0);
}

// A TIFF structure with a gap before its directory.
std::string tiff(const std::string& entries, std::uint32_t gap = 0) {
  return std::string("MM\0*", 4) + big_endian({8 + gap}) + std::string(gap, '\x01') +
         two_bytes(static_cast<std::uint32_t>(entries.size() / 12)) + entries + big_endian({0});
}

std::string oriented(std::uint32_t value) { return tiff(entry(0x0112, kShort, value)); }

std::string segment(char marker, const std::string& content) {
  return std::string("\xff") + marker + two_bytes(static_cast<std::uint32_t>(content.size()) + 2) +
         content;
}

std::string exif(const std::string& content) {
  return segment('\xe1', std::string("Exif\0\0", 6) + content);
}

std::string xmp(const std::string& content) {
  return segment('\xe1', std::string("http://ns.adobe.com/xap/1.0/\0", 29) + content);
}

std::string jpeg(const std::string& segments) { return "\xff\xd8" + segments + "\xff\xd9"; }

std::string chunk(const std::string& type, const std::string& content) {
  return big_endian({static_cast<std::uint32_t>(content.size())}) + type + content + "sum?";
}

std::string png(const std::string& chunks) { return "\x89PNG\r\n\x1a\n" + chunks; }

TEST(Exif, IsInTheFirstSegmentThatHasIt) {
  const std::string app0 = segment('\xe0', std::string("JFIF\0\x01\x01", 7));
  const std::string none = exif(tiff(entry(0x0100, kShort, 6)));
  EXPECT_EQ(orientation_of(jpeg(exif(oriented(6)))), 6);
  EXPECT_EQ(orientation_of(jpeg(app0 + exif(oriented(6)))), 6);
  EXPECT_EQ(orientation_of(jpeg(exif(oriented(6)) + exif(oriented(3)))), 6);
  EXPECT_EQ(orientation_of(jpeg(none + exif(oriented(3)))), 3);
  EXPECT_EQ(orientation_of(jpeg(none)), 1);
  EXPECT_EQ(orientation_of(jpeg("\xff\xff\xff" + exif(oriented(8)))), 8) << "bytes that fill";
  EXPECT_EQ(orientation_of(jpeg(segment('\xe2', std::string("Exif\0\0", 6) + oriented(6)))), 1)
      << "another kind of segment";
}

TEST(Exif, IsNotLookedForBehindThePixels) {
  const std::string scan = segment('\xda', "pixels");
  EXPECT_EQ(orientation_of(jpeg(scan + exif(oriented(6)))), 1);
  EXPECT_EQ(orientation_of(jpeg("") + exif(oriented(6))), 1) << "behind the end";
  EXPECT_EQ(orientation_of(jpeg("?" + exif(oriented(6)))), 1) << "no marker";
  EXPECT_EQ(orientation_of(jpeg(std::string("\xff\xe0\0\x01", 4) + exif(oriented(6)))), 1)
      << "a length that does not cover itself";
  EXPECT_EQ(orientation_of("GIF89a" + exif(oriented(6))), 1);
}

TEST(Exif, FollowsTheOffsetAndTypesOfItsDirectory) {
  const std::string others = entry(0x0100, kShort, 3) + entry(0x0111, kShort, 4);
  const std::string more = entry(0x0113, kShort, 5);
  EXPECT_EQ(orientation_of(jpeg(exif(tiff(others + entry(0x0112, kShort, 7) + more, 6)))), 7);
  constexpr std::uint32_t kText = 2;
  EXPECT_EQ(orientation_of(jpeg(exif(tiff(entry(0x0112, kText, 6))))), 1);
  for (std::uint32_t value = 0; value < 12; ++value) {
    const int expected = value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    EXPECT_EQ(orientation_of(jpeg(exif(oriented(value)))), expected);
  }
}

// Most cameras write their numbers little-endian.
TEST(Exif, IsReadInEitherOrderOfBytes) {
  const auto little = [](std::uint32_t value, std::size_t bytes) {
    std::string text;
    for (; bytes > 0; --bytes, value >>= 8) text += static_cast<char>(value & 0xff);
    return text;
  };
  const auto little_tiff = [&](std::uint32_t type, std::uint32_t value) {
    const std::string other = little(0x0100, 2) + little(kShort, 2) + little(1, 4) + little(3, 4);
    return "II*" + little(0, 1) + little(10, 4) + "??" + little(2, 2) + other + little(0x0112, 2) +
           little(type, 2) + little(1, 4) + little(value, 4) + little(0, 4);
  };
  constexpr std::uint32_t kLong = 4;
  const std::string big_long =
      tiff(two_bytes(0x0112) + two_bytes(kLong) + big_endian({1}) + big_endian({6}));
  EXPECT_EQ(orientation_of(jpeg(exif(big_long))), 6);
  for (std::uint32_t value = 1; value <= 8; ++value) {
    EXPECT_EQ(orientation_of(jpeg(exif(little_tiff(kShort, value)))), static_cast<int>(value));
    EXPECT_EQ(orientation_of(jpeg(exif(little_tiff(kLong, value)))), static_cast<int>(value));
  }
  EXPECT_EQ(orientation_of(jpeg(exif(little_tiff(kLong, 0x10006)))), 1) << "no orientation";
  EXPECT_EQ(orientation_of(jpeg(exif(little_tiff(kShort, 0x10006)))), 6) << "two bytes of four";
}

// EXIF that ends within its directory has no orientation as long as the value is not complete.
TEST(Exif, MayEndAnywhere) {
  const std::string whole = oriented(6);
  constexpr std::size_t kEndOfValue = 8 + 2 + 10;  // header, number of entries, entry up to there
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_EQ(orientation_of(jpeg(exif(cut))), size < kEndOfValue ? 1 : 6) << size << " bytes";
    EXPECT_EQ(orientation_of(png(chunk("eXIf", cut))), size < kEndOfValue ? 1 : 6) << size;
  }
  std::string beyond = whole;  // the directory begins behind the end
  beyond.replace(4, 4, big_endian({0xffff'ffff}));
  EXPECT_EQ(orientation_of(jpeg(exif(beyond))), 1);
  std::string more = whole;  // more entries than there are
  more.replace(8, 4, two_bytes(0xffff) + two_bytes(0x0100));
  EXPECT_EQ(orientation_of(jpeg(exif(more))), 1);
}

TEST(Exif, StandsBeforeXmp) {
  EXPECT_EQ(orientation_of(jpeg(xmp("<a tiff:Orientation=\"8\"/>"))), 8);
  EXPECT_EQ(orientation_of(jpeg(xmp("<tiff:Orientation>3</tiff:Orientation>"))), 3);
  EXPECT_EQ(orientation_of(jpeg(xmp("tiff:Orientation=\"8\"") + exif(oriented(2)))), 2);
  EXPECT_EQ(orientation_of(jpeg(xmp("tiff:Orientation=\"8\"") + xmp("tiff:Orientation=\"7\""))), 8);
  EXPECT_EQ(orientation_of(jpeg(xmp("the tiff:Orientation is <tiff:Orientation>5"))), 5);
  for (const char* none : {"tiff:Orientation", "tiff:Orientation=\"", "tiff:Orientation=\"x\"",
                           "tiff:Orientation=\"9\"", "tiff:Orientation=\"0\"", "Orientation>6",
                           "tiff:Orientation=\"-6\"", "tiff:Orientation> 6"}) {
    EXPECT_EQ(orientation_of(jpeg(xmp(none))), 1) << none;
  }
}

// EXIF without an orientation, or with a damaged one, does not hide that of XMP.
TEST(Exif, LeavesTheOrientationToXmpIfItHasNone) {
  const std::string eight = xmp("tiff:Orientation=\"8\"");
  constexpr std::uint32_t kText = 2;
  for (const std::string& none :
       {tiff(""), tiff(entry(0x0100, kShort, 6)), tiff(entry(0x0112, kText, 6)),
        oriented(6).substr(0, 15), std::string("XX\0*\0\0\0\x08", 8)}) {
    EXPECT_EQ(orientation_of(jpeg(exif(none) + eight)), 8);
    EXPECT_EQ(orientation_of(jpeg(eight + exif(none))), 8);
  }
  EXPECT_EQ(orientation_of(jpeg(exif(oriented(0)) + eight)), 1) << "a number that is none";
}

TEST(Exif, IsAChunkOfAPng) {
  const std::string header = chunk("IHDR", std::string(13, '\x01'));
  EXPECT_EQ(orientation_of(png(header + chunk("eXIf", oriented(6)))), 6);
  EXPECT_EQ(orientation_of(png(header + chunk("tEXt", "eXIf") + chunk("eXIf", oriented(5)))), 5);
  EXPECT_EQ(orientation_of(png(header + chunk("IDAT", "") + chunk("eXIf", oriented(4)))), 4);
  EXPECT_EQ(orientation_of(png(header + chunk("exif", oriented(6)))), 1);
  const std::string whole = png(header + chunk("eXIf", oriented(6)));
  EXPECT_EQ(orientation_of(whole.substr(0, whole.size() - 1)), 1) << "cut short";
  EXPECT_EQ(orientation_of(png(big_endian({0xffff'fff0}) + "IHDR" + std::string(30, '\x01'))), 1);
}

}  // namespace
}  // namespace lockstep::testing_support
