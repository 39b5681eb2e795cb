// The rank that a wait in a trace refers to.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::report {

/// 3 for "reduction: waits for rank 3", the name that write_chrome_trace() gives to the wait for a
/// late rank; nothing for other names.
inline std::optional<int> rank_waited_for(const std::string& name) {
  constexpr std::string_view kWords = ": waits for rank ";
  const auto at = name.rfind(kWords);
  if (at == std::string::npos) return std::nullopt;
  int rank = 0;
  const char* const begin = name.data() + at + kWords.size();
  const auto [stop, error] = std::from_chars(begin, name.data() + name.size(), rank);
  if (error != std::errc() || stop != name.data() + name.size()) return std::nullopt;
  return rank;
}

}  // namespace lockstep::report
