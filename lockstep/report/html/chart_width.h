// How wide the report's charts are.
#pragma once

#include <string>

#include <lockstep/core/strings.h>

namespace lockstep::html {

/// Pixels. A chart is drawn for each, and the page shows the one that its window has room for: a
/// wide one that shrinks would have letters too small to read.
inline constexpr double kWide = 720;
inline constexpr double kNarrow = 340;

/// Whether names stand above what they name, not beside it.
inline bool is_narrow(double width) { return width < 500; }

/// `chart` by its svg_of(), in both widths; empty where there is nothing to draw.
template <class Chart>
std::string in_both_widths(const Chart& chart) {
  const std::string wide = svg_of(chart, kWide);
  if (wide.empty()) return "";
  return str("<div class=\"wide\">\n", wide, "</div>\n<div class=\"narrow\">\n",
             svg_of(chart, kNarrow), "</div>\n");
}

}  // namespace lockstep::html
