// Makes text from a file safe for a message.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::formats {

/// Shortens and cleans `text`, which may come from a damaged file, so that a message stays one
/// line.
inline std::string printable(std::string_view text) {
  std::string result(text.substr(0, 80));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return result;
}

}  // namespace lockstep::formats
