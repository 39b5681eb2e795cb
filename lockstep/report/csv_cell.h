// Cells of CSV tables.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::report {

/// A cell by RFC 4180: text with a comma, a quote or a line break is quoted.
inline std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (const char letter : text) {
    if (letter == '"') cell += '"';
    cell += letter;
  }
  return cell + '"';
}

}  // namespace lockstep::report
