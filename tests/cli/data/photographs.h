// A photograph as it lies, with its EXIF orientation, and the same one upright.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/formats/png.h>
#include <tests/support/data_bytes.h>
#include <tests/support/temporary_directory.h>

namespace lockstep::testing_support {

inline std::uint32_t crc32_of(const std::string& text) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : text) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc % 2 == 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
  }
  return ~crc;
}

/// A PNG with the EXIF orientation 6: it is upright once it has been turned to the right.
inline std::string turned_to_the_left(const std::string& png) {
  constexpr std::size_t kAfterHeader = 33;
  const std::string exif = std::string("MM\0*", 4) + big_endian({8}) +
                           std::string("\0\1\1\x12\0\3", 6) + big_endian({1, 6 << 16, 0});
  const std::string typed = "eXIf" + exif;
  return png.substr(0, kAfterHeader) + big_endian({static_cast<std::uint32_t>(exif.size())}) +
         typed + big_endian({crc32_of(typed)}) + png.substr(kAfterHeader);
}

/// Writes one photograph of 30x20 pixels twice: as it lies in a/photos, and upright in b/photos.
inline void write_photographs(const TemporaryDirectory& data) {
  constexpr int kWidth = 30, kHeight = 20;
  std::vector<std::uint8_t> lying, upright;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const auto red = static_cast<std::uint8_t>(8 * x), green = static_cast<std::uint8_t>(12 * y);
      lying.insert(lying.end(), {red, green, 7});
    }
  }
  for (int y = 0; y < kWidth; ++y) {
    for (int x = 0; x < kHeight; ++x) {
      const auto* const from =
          &lying[static_cast<std::size_t>(3 * ((kHeight - 1 - x) * kWidth + y))];
      upright.insert(upright.end(), from, from + 3);
    }
  }
  data.write("a/photos/cat/1.png", turned_to_the_left(detail::encode_png(lying, kWidth, kHeight)));
  data.write("b/photos/cat/1.png", detail::encode_png(upright, kHeight, kWidth));
}

}  // namespace lockstep::testing_support
