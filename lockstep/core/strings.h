// Text from values, for messages: str("rank ", 3, ": ", reason).
#pragma once

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
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

/// `text` without the blanks at its beginning and end: spaces, tabs and carriage returns.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

/// Two lower-case hexadecimal digits for each element of `bytes`, a range of one-byte values.
template <class Bytes>
std::string hex_text(const Bytes& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    static_assert(sizeof(byte) == 1);
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
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
