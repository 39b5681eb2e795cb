#include <lockstep/formats/exif.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::detail {
namespace {

using namespace std::string_view_literals;

constexpr auto kExifMark = "Exif\0\0"sv;
constexpr auto kXmpMark = "http://ns.adobe.com/xap/1.0/\0"sv;
constexpr auto kPngMark = "\x89PNG\r\n\x1a\n"sv;
constexpr std::uint32_t kOrientation = 0x0112;
constexpr std::uint32_t kShort = 3;  // a TIFF type
constexpr std::uint32_t kLong = 4;

// `count` bytes of `text` at `at` as a number; nothing if they are not all there.
std::optional<std::uint32_t> number_at(std::string_view text, std::size_t at, std::size_t count,
                                       bool little_endian) {
  if (at > text.size() || text.size() - at < count) return std::nullopt;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = little_endian ? count - 1 - i : i;
    value = value << 8 | static_cast<unsigned char>(text[at + place]);
  }
  return value;
}

// The orientation in the first directory of a TIFF structure, which EXIF is; 0 if its number is not
// one of the orientations.
std::optional<int> orientation_of_tiff(std::string_view tiff) {
  const bool little_endian = tiff.starts_with("II*\0"sv);
  if (!little_endian && !tiff.starts_with("MM\0*"sv)) return std::nullopt;
  const auto number = [&](std::size_t at, std::size_t count) {
    return number_at(tiff, at, count, little_endian);
  };
  const auto directory = number(4, 4);
  if (!directory) return std::nullopt;
  const std::uint32_t entries = number(*directory, 2).value_or(0);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = *directory + 2 + 12 * i;
    const auto tag = number(entry, 2);
    if (!tag) return std::nullopt;
    if (*tag != kOrientation) continue;
    const auto type = number(entry + 2, 2);
    if (type != kShort && type != kLong) return std::nullopt;
    const auto value = number(entry + 8, type == kShort ? 2 : 4);
    if (!value) return std::nullopt;
    return *value > 8 ? 0 : static_cast<int>(*value);
  }
  return std::nullopt;
}

// tiff:Orientation="6" or <tiff:Orientation>6
std::optional<int> orientation_of_xmp(std::string_view xmp) {
  constexpr auto kName = "tiff:Orientation"sv;
  for (auto at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    for (const auto before : {"=\""sv, ">"sv}) {
      if (!rest.starts_with(before) || rest.size() <= before.size()) continue;
      const char digit = rest[before.size()];
      if (digit >= '0' && digit <= '9') return digit - '0';
    }
  }
  return std::nullopt;
}

std::optional<int> orientation_of_jpeg(std::string_view file) {
  std::optional<int> exif, xmp;
  std::size_t at = 2;  // after the beginning of the image
  while (at + 4 <= file.size() && file[at] == '\xff') {
    const auto marker = static_cast<unsigned char>(file[at + 1]);
    if (marker == 0xff) {  // a fill byte
      ++at;
      continue;
    }
    constexpr unsigned kScan = 0xda, kEnd = 0xd9, kApp1 = 0xe1;
    if (marker == kScan || marker == kEnd) break;
    const std::uint32_t length = number_at(file, at + 2, 2, /*little_endian=*/false).value_or(0);
    if (length < 2) break;
    const std::string_view content = file.substr(at + 4, length - 2);
    if (marker == kApp1 && content.starts_with(kExifMark) && !exif) {
      exif = orientation_of_tiff(content.substr(kExifMark.size()));
    } else if (marker == kApp1 && content.starts_with(kXmpMark) && !xmp) {
      xmp = orientation_of_xmp(content);
    }
    at += 2 + length;
  }
  return exif ? exif : xmp;
}

std::optional<int> orientation_of_png(std::string_view file) {
  constexpr std::size_t kOverhead = 12;  // length, type and checksum of a chunk
  std::size_t at = kPngMark.size();
  while (at + kOverhead <= file.size()) {
    const std::size_t length = number_at(file, at, 4, /*little_endian=*/false).value_or(0);
    if (length > file.size() - at - kOverhead) break;
    if (file.substr(at + 4, 4) == "eXIf") return orientation_of_tiff(file.substr(at + 8, length));
    at += kOverhead + length;
  }
  return std::nullopt;
}

}  // namespace

int exif_orientation(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  std::optional<int> orientation;
  if (text.starts_with("\xff\xd8")) orientation = orientation_of_jpeg(text);
  if (text.starts_with(kPngMark)) orientation = orientation_of_png(text);
  return orientation && *orientation >= 1 && *orientation <= 8 ? *orientation : 1;
}

}  // namespace lockstep::detail
