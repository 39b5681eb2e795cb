// Widths of the report's charts.
#pragma once

#include <string>

#include <lockstep/core/strings.h>

namespace lockstep::html {

/// Widths in pixels. Each chart is drawn in both, and the page shows the one that fits its window:
/// if a wide chart were scaled down, its text would be too small to read.
inline constexpr double kWide = 720;
inline constexpr double kNarrow = 340;

/// Whether labels stand above their objects instead of beside them.
inline bool is_narrow(double width) { return width < 500; }

/// `chart` drawn by its svg_of() in both widths; empty if there is nothing to draw.
template <class Chart>
std::string in_both_widths(const Chart& chart) {
  const std::string wide = svg_of(chart, kWide);
  if (wide.empty()) return "";
  return str("<div class=\"wide\">\n", wide, "</div>\n<div class=\"narrow\">\n",
             svg_of(chart, kNarrow), "</div>\n");
}

}  // namespace lockstep::html
