// Text from values, for messages: str("rank ", 3, ": ", reason).
#pragma once

#include <cstddef>
#include <cstdint>
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

/// The singular or plural of `noun` for `count`: "stage" for 1, else "stages", "processes",
/// "batches".
inline std::string noun_for(std::int64_t count, const std::string& noun) {
  if (count == 1) return noun;
  const std::size_t size = noun.size();
  const bool sibilant =
      size >= 2 && (noun[size - 1] == 's' || noun.compare(size - 2, 2, "ch") == 0);
  return noun + (sibilant ? "es" : "s");
}

/// "1 stage", "2 stages".
inline std::string amount_of(std::int64_t count, const std::string& noun) {
  return str(count, ' ', noun_for(count, noun));
}

/// Joins `parts` with `separator`.
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
