// Text of a file in a message.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// `text`, which a damaged file may have supplied, cut and cleaned so that a message stays one
/// line.
inline std::string printable(std::string_view text) {
  std::string result(text.substr(0, 80));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return result;
}

}  // namespace lockstep
