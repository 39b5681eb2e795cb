// A font for images: printable ASCII and an ellipsis.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

constexpr int kGlyphWidth = 5;    ///< pixels
constexpr int kGlyphHeight = 8;   ///< pixels, the last row below the baseline
constexpr int kGlyphAdvance = 6;  ///< pixels from one glyph to the next

/// Rows from the top; bit 4 is the leftmost pixel.
using Glyph = std::array<std::uint8_t, kGlyphHeight>;

/// The glyphs of UTF-8 text, one per character; '?' for characters that the font lacks.
std::vector<Glyph> glyphs_of(std::string_view text);
/// Whether the font has every character of `text`.
bool can_draw(std::string_view text);

/// `text` if it has at most `columns` characters, otherwise its beginning with an ellipsis.
/// `columns` is at least 1.
std::string cut_text(std::string_view text, std::size_t columns);

/// Lines of at most `columns` characters, broken at spaces; longer words are split.
std::vector<std::string> wrap_text(std::string_view text, std::size_t columns);

}  // namespace lockstep::report
