// Lists in options: words separated by commas.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

/// Splits "a,b" into {"a", "b"}; `separator` replaces the comma.
inline std::vector<std::string> words_of(const std::string& text, char separator = ',') {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(separator, at), text.size());
    words.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

}  // namespace lockstep
