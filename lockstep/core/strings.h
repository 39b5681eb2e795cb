// Text from values, for messages: str("rank ", 3, ": ", reason).
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace lockstep {

/// The arguments, streamed one after the other into one string.
template <class... Values>
std::string str(const Values&... values) {
  std::ostringstream out;
  if constexpr (sizeof...(values) > 0) (out << ... << values);
  return out.str();
}

/// `parts` with `separator` between them.
template <class Range>
std::string join(const Range& parts, const char* separator = ", ") {
  std::ostringstream out;
  const char* before = "";
  for (const auto& part : parts) {
    out << before << part;
    before = separator;
  }
  return out.str();
}

}  // namespace lockstep
