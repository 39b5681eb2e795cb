// Cells of CSV tables.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/core/encoding/utf8.h>

namespace lockstep::report {

/// A cell by RFC 4180: text with a comma, a quote or a line break is quoted. Bytes that are not
/// UTF-8, which readers such as pandas refuse, are written by utf8_text().
inline std::string csv_cell(std::string_view bytes) {
  const std::string text = utf8_text(bytes);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char letter : text) {
    if (letter == '"') cell += '"';
    cell += letter;
  }
  return cell + '"';
}

}  // namespace lockstep::report
