// Helpers for the program's pictures: self-contained SVG that is legible on light and dark
// backgrounds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::svg {

inline constexpr std::size_t kColors = 8;

/// The colors of one scheme, light or dark. CSS rules are written out for both schemes, because not
/// every SVG reader supports CSS variables.
struct Palette {
  const char *back, *ink, *soft, *line, *gray;
  const char* colors[kColors];
};
inline constexpr Palette kLight = {
    "#ffffff",
    "#1f2328",
    "#656d76",
    "#d0d7de",
    "#57606a",
    {"#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700", "#0e7490", "#cf222e"}};
inline constexpr Palette kDark = {
    "#0d1117",
    "#e6edf3",
    "#9198a1",
    "#3d444d",
    "#b1bac4",
    {"#58a6ff", "#f0883e", "#3fb950", "#bc8cff", "#f778ba", "#d29922", "#39c5cf", "#ff7b72"}};

/// A length in pixels, with at most one decimal: "12", "12.5".
std::string number(double value);
/// `text` escaped for SVG: "<" becomes "&lt;". Invalid UTF-8 is replaced, and control characters
/// become blanks, so that any bytes give well-formed XML.
std::string escaped(std::string_view text);
/// `text`, shortened with an ellipsis if it would take more than about `width` pixels.
std::string fitted(std::string_view text, double width);

/// The opening tag of a picture with the given name.
std::string opened(double width, double height, std::string_view name);
/// A text, which is escaped here, and a thin line.
std::string text_at(double x, double y, std::string_view classes, std::string_view text);
std::string line_between(double x1, double y1, double x2, double y2);

/// The distance between marks on an axis from 0 to `total`, which must be positive: 1, 2 or 5 times
/// a power of ten, chosen to give three to seven marks.
double distance_of_marks(double total);

}  // namespace lockstep::svg
