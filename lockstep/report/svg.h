// Helpers for the program's pictures: self-contained SVG that is legible on light and dark
// backgrounds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::svg {

inline constexpr std::size_t kColors = 8;

/// The colors of one scheme, light or dark. CSS rules are written out for both schemes, because not
/// every SVG reader supports CSS variables. The eight colors have a contrast of at least 4.5
/// against `back`, and can be told apart by people who do not see red or green (palette_test.cpp).
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
    {"#2b76b2", "#ca4702", "#058663", "#03339b", "#530a2c", "#303604", "#00576d", "#bc003b"}};
inline constexpr Palette kDark = {
    "#0d1117",
    "#e6edf3",
    "#9198a1",
    "#3d444d",
    "#b1bac4",
    {"#8fc5ff", "#bb6c02", "#aaf8a2", "#767cf3", "#d73e9b", "#fce95a", "#65fde6", "#da4d62"}};

/// A length in pixels, with at most one decimal: "12", "12.5".
std::string number(double value);
/// `text` escaped for SVG: "<" becomes "&lt;". Invalid UTF-8 is replaced, and control characters
/// become blanks, so that any bytes give well-formed XML.
std::string escaped(std::string_view text);
/// `text`, shortened with an ellipsis if it would take more than about `width` pixels.
std::string fitted(std::string_view text, double width);

/// The opening tag of a picture with the given name.
std::string opened(double width, double height, std::string_view name);
/// The style sheet of a picture: `shapes` are its rules without colors, and `colors` returns those
/// of one scheme, among them the fill of the class `back`.
std::string style_sheet(std::string_view shapes, std::string (&colors)(const Palette&));
/// The rules that `colors` returns, for light screens and for dark ones.
std::string for_both_schemes(std::string (&colors)(const Palette&));
/// A rectangle of the class `back` behind the whole picture.
std::string background();
/// A text, which is escaped here, and a thin line.
std::string text_at(double x, double y, std::string_view classes, std::string_view text);
std::string line_between(double x1, double y1, double x2, double y2);
/// A rectangle. `title` is shown on hover, if it is not empty.
std::string rect(double x, double y, double width, double height, std::string_view classes,
                 std::string_view title = "");

/// The distance between marks on an axis from 0 to `total`, which must be positive: 1, 2 or 5 times
/// a power of ten, chosen to give three to seven marks.
double distance_of_marks(double total);

}  // namespace lockstep::svg
