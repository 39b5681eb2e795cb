#include <lockstep/formats/utf8.h>

#include <cstddef>

namespace lockstep::formats {

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
    std::size_t more = 0;
    char32_t character = byte(0);
    char32_t least = 0;
    if (character >= 0x80) {
      if (character >= 0xc2 && character < 0xe0) {
        more = 1, character &= 0x1f, least = 0x80;
      } else if (character >= 0xe0 && character < 0xf0) {
        more = 2, character &= 0x0f, least = 0x800;
      } else if (character >= 0xf0 && character < 0xf5) {
        more = 3, character &= 0x07, least = 0x10000;
      } else {
        return false;
      }
    }
    if (text.size() - at <= more) return false;
    for (std::size_t i = 1; i <= more; ++i) {
      if ((byte(i) & 0xc0) != 0x80) return false;
      character = character << 6 | (byte(i) & 0x3f);
    }
    if (character < least || character > 0x10ffff) return false;
    if (character >= 0xd800 && character < 0xe000) return false;
    at += more + 1;
  }
  return true;
}

}  // namespace lockstep::formats
