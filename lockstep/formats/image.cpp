#include <lockstep/formats/image.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <sstream>
#include <string>

#include <lockstep/core/error.h>

namespace lockstep {
namespace {

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin(), [](char expected, std::byte got) {
           return static_cast<std::byte>(expected) == got;
         });
}

// A format that other programs read. Such a file often has the extension .jpg or .png.
struct ForeignFormat {
  const char* name;  // with its article
  std::size_t offset;
  std::string_view magic;
};
constexpr std::array<ForeignFormat, 9> kForeignFormats{{{"a GIF", 0, "GIF87a"},
                                                        {"a GIF", 0, "GIF89a"},
                                                        {"a WebP", 8, "WEBP"},
                                                        {"a BMP", 0, "BM"},
                                                        {"a TIFF", 0, {"II*\0", 4}},
                                                        {"a TIFF", 0, {"MM\0*", 4}},
                                                        {"an AVIF", 4, "ftypavif"},
                                                        {"a HEIF", 4, "ftyphei"},
                                                        {"a HEIF", 4, "ftypmif1"}}};

const ForeignFormat* foreign_format(std::span<const std::byte> bytes) {
  for (const ForeignFormat& format : kForeignFormats) {
    if (bytes.size() >= format.offset && begins_with(bytes.subspan(format.offset), format.magic)) {
      return &format;
    }
  }
  return nullptr;
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::ostringstream out;
  out << std::hex << std::setfill('0');
  const char* before = "";
  for (const std::byte byte : bytes) {
    out << before << std::setw(2) << std::to_integer<int>(byte);
    before = " ";
  }
  return out.str();
}

}  // namespace

ImageType image_type(std::span<const std::byte> bytes, std::string_view name) {
  if (begins_with(bytes, "\xff\xd8\xff")) return ImageType::kJpeg;
  if (begins_with(bytes, "\x89PNG\r\n\x1a\n")) return ImageType::kPng;
  if (bytes.empty())
    throw DataError(str(name, ": expected a JPEG or PNG image, the file is empty"));
  if (const ForeignFormat* format = foreign_format(bytes)) {
    throw DataError(str(name, ": is ", format->name, " image, expected JPEG or PNG; convert it"));
  }
  throw DataError(str(name, ": neither JPEG nor PNG, it begins with ",
                      hexadecimal(bytes.first(std::min<std::size_t>(bytes.size(), 8)))));
}

void check_region(const ImageRegion& region, std::int64_t width, std::int64_t height,
                  std::span<const std::uint8_t> pixels) {
  LOCKSTEP_CHECK(region.left >= 0 && region.top >= 0 && region.width > 0 && region.height > 0 &&
                     region.width <= width - region.left && region.height <= height - region.top,
                 "region of ", region.width, "x", region.height, " at (", region.left, ", ",
                 region.top, ") of an image of ", width, "x", height);
  LOCKSTEP_CHECK(pixels.size() == rgb_bytes(region), "got room for ", pixels.size(),
                 " bytes, expected ", rgb_bytes(region));
}

void check_image_size(const ImageHeader& header, const ImageDecoderOptions& options,
                      std::size_t file_bytes, std::int64_t maximum_pixels_per_byte,
                      std::string_view name) {
  const std::int64_t pixels = std::int64_t{header.width} * header.height;
  if (pixels > options.max_image_pixels) {
    throw DataError(str(name, ": an image of ", header.width, "x", header.height, " has ", pixels,
                        " pixels, at most ", options.max_image_pixels,
                        " are allowed; raise ImageDecoderOptions::max_image_pixels"));
  }
  if (pixels / maximum_pixels_per_byte > static_cast<std::int64_t>(file_bytes)) {
    throw DataError(str(name, ": damaged or truncated image (claims ", header.width, "x",
                        header.height, " pixels, which ", file_bytes, " bytes cannot hold)"));
  }
}

}  // namespace lockstep
