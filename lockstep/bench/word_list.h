// Splits the value of an option that is a list, such as "ddp,zero1".
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::bench {

/// Splits `text` at every `separator`: "a,b" into {"a", "b"}. "" gives one empty word.
inline std::vector<std::string> words_of(const std::string& text, char separator = ',') {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(separator, at), text.size());
    words.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

}  // namespace lockstep::bench
