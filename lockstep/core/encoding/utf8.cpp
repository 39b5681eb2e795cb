#include <lockstep/core/encoding/utf8.h>

#include <algorithm>
#include <cstddef>

#include <lockstep/core/strings.h>

namespace lockstep {
namespace {

// The number of bytes of the character with which `text` begins; 0 if it does not begin with one.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  char32_t character = byte(0);
  if (character < 0x80) return 1;
  std::size_t more = 0;
  char32_t least = 0;
  if (character >= 0xc2 && character < 0xe0) {
    more = 1, character &= 0x1f, least = 0x80;
  } else if (character >= 0xe0 && character < 0xf0) {
    more = 2, character &= 0x0f, least = 0x800;
  } else if (character >= 0xf0 && character < 0xf5) {
    more = 3, character &= 0x07, least = 0x10000;
  } else {
    return 0;
  }
  if (text.size() <= more) return 0;
  for (std::size_t i = 1; i <= more; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    character = character << 6 | (byte(i) & 0x3f);
  }
  const bool is_surrogate = character >= 0xd800 && character < 0xe000;
  return character < least || character > 0x10ffff || is_surrogate ? 0 : more + 1;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string utf8_text(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length > 0) {
      result += text.substr(0, length);
    } else {
      result += "\\x" + hex_text(text.substr(0, 1));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

}  // namespace lockstep
