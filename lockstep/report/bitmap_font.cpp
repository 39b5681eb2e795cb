#include <lockstep/report/bitmap_font.h>

#include <algorithm>
#include <optional>

namespace lockstep::report {
namespace {

constexpr int kGlyphs = 96;
constexpr int kGlyphsInLine = 12;
constexpr int kEllipsis = kGlyphs - 1;  // replaces ASCII's "delete"
constexpr std::string_view kEllipsisText = "\u2026";

constexpr std::string_view kDrawings[] = {
    // space ! " # $ % & ' ( ) * +
    "..... ..#.. .#.#. .#.#. ..#.. ##... .##.. ..#.. ...#. .#... ..... .....",
    "..... ..#.. .#.#. .#.#. .#### ##..# #..#. ..#.. ..#.. ..#.. ..#.. ..#..",
    "..... ..#.. .#.#. ##### #.#.. ...#. #.#.. .#... .#... ...#. #.#.# ..#..",
    "..... ..#.. ..... .#.#. .###. ..#.. .#... ..... .#... ...#. .###. #####",
    "..... ..#.. ..... ##### ..#.# .#... #.#.# ..... .#... ...#. #.#.# ..#..",
    "..... ..... ..... .#.#. ####. #..## #..#. ..... ..#.. ..#.. ..#.. ..#..",
    "..... ..#.. ..... .#.#. ..#.. ...## .##.# ..... ...#. .#... ..... .....",
    "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
    // , - . / 0 1 2 3 4 5 6 7
    "..... ..... ..... ....# .###. ..#.. .###. .###. ...#. ##### ..##. #####",
    "..... ..... ..... ....# #...# .##.. #...# #...# ..##. #.... .#... ....#",
    "..... ..... ..... ...#. #..## #.#.. ....# ....# .#.#. ####. #.... ...#.",
    "..... ##### ..... ..#.. #.#.# ..#.. ..##. ..##. #..#. ....# ####. ...#.",
    "..... ..... ..... .#... ##..# ..#.. .#... ....# ##### ....# #...# ..#..",
    ".##.. ..... .##.. #.... #...# ..#.. #.... #...# ...#. #...# #...# ..#..",
    "..#.. ..... .##.. #.... .###. ##### ##### .###. ...#. .###. .###. ..#..",
    ".#... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
    // 8 9 : ; < = > ? @ A B C
    ".###. .###. ..... ..... ...#. ..... .#... .###. .###. ..#.. ####. .###.",
    "#...# #...# .##.. .##.. ..#.. ..... ..#.. #...# #...# .#.#. #...# #...#",
    "#...# #...# .##.. .##.. .#... ##### ...#. ....# #.### #...# #...# #....",
    ".###. .#### ..... ..... #.... ..... ....# ..##. #.#.# #...# ####. #....",
    "#...# ....# .##.. .##.. .#... ##### ...#. ..#.. #.### ##### #...# #....",
    "#...# ...#. .##.. ..#.. ..#.. ..... ..#.. ..... #.... #...# #...# #...#",
    ".###. .##.. ..... .#... ...#. ..... .#... ..#.. .#### #...# ####. .###.",
    "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
    // D E F G H I J K L M N O
    "###.. ##### ##### .###. #...# .###. ..### #...# #.... #...# #...# .###.",
    "#..#. #.... #.... #...# #...# ..#.. ...#. #..#. #.... ##.## ##..# #...#",
    "#...# #.... #.... #.... #...# ..#.. ...#. #.#.. #.... #.#.# ##..# #...#",
    "#...# ####. ####. #.### ##### ..#.. ...#. ##... #.... #.#.# #.#.# #...#",
    "#...# #.... #.... #...# #...# ..#.. ...#. #.#.. #.... #...# #..## #...#",
    "#..#. #.... #.... #...# #...# ..#.. #..#. #..#. #.... #...# #..## #...#",
    "###.. ##### #.... .#### #...# .###. .##.. #...# ##### #...# #...# .###.",
    "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
    // P Q R S T U V W X Y Z [
    "####. .###. ####. .#### ##### #...# #...# #...# #...# #...# ##### .###.",
    "#...# #...# #...# #.... ..#.. #...# #...# #...# #...# #...# ....# .#...",
    "#...# #...# #...# #.... ..#.. #...# #...# #...# .#.#. .#.#. ...#. .#...",
    "####. #...# ####. .###. ..#.. #...# #...# #.#.# ..#.. ..#.. ..#.. .#...",
    "#.... #.#.# #.#.. ....# ..#.. #...# .#.#. #.#.# .#.#. ..#.. .#... .#...",
    "#.... #..#. #..#. ....# ..#.. #...# .#.#. ##.## #...# ..#.. #.... .#...",
    "#.... .##.# #...# ####. ..#.. .###. ..#.. #...# #...# ..#.. ##### .###.",
    "..... ..... ..... ..... ..... ..... ..... ..... ..... ..... ..... .....",
    // \ ] ^ _ ` a b c d e f g
    "#.... .###. ..#.. ..... .#... ..... #.... ..... ....# ..... ..##. .....",
    "#.... ...#. .#.#. ..... ..#.. ..... #.... ..... ....# ..... .#... .....",
    ".#... ...#. #...# ..... ..... .###. ####. .#### .#### .###. ####. .####",
    "..#.. ...#. ..... ..... ..... ....# #...# #.... #...# #...# .#... #...#",
    "...#. ...#. ..... ..... ..... .#### #...# #.... #...# ##### .#... #...#",
    "....# ...#. ..... ..... ..... #...# #...# #.... #...# #.... .#... .####",
    "....# .###. ..... ..... ..... .#### ####. .#### .#### .###. .#... ....#",
    "..... ..... ..... ##### ..... ..... ..... ..... ..... ..... ..... .###.",
    // h i j k l m n o p q r s
    "#.... ..#.. ...#. #.... .##.. ..... ..... ..... ..... ..... ..... .....",
    "#.... ..... ..... #.... ..#.. ..... ..... ..... ..... ..... ..... .....",
    "####. .##.. ..##. #..#. ..#.. ##.#. ####. .###. ####. .#### #.##. .####",
    "#...# ..#.. ...#. #.#.. ..#.. #.#.# #...# #...# #...# #...# ##..# #....",
    "#...# ..#.. ...#. ##... ..#.. #.#.# #...# #...# #...# #...# #.... .###.",
    "#...# ..#.. ...#. #.#.. ..#.. #.#.# #...# #...# ####. .#### #.... ....#",
    "#...# .###. #..#. #..#. .###. #.#.# #...# .###. #.... ....# #.... ####.",
    "..... ..... .##.. ..... ..... ..... ..... ..... #.... ....# ..... .....",
    // t u v w x y z { | } ~ ellipsis
    ".#... ..... ..... ..... ..... ..... ..... ...## ..#.. ##... ..... .....",
    ".#... ..... ..... ..... ..... ..... ..... ..#.. ..#.. ..#.. ..... .....",
    "####. #...# #...# #...# #...# #...# ##### ..#.. ..#.. ..#.. .#... .....",
    ".#... #...# #...# #...# .#.#. #...# ...#. .#... ..#.. ...#. #.#.# .....",
    ".#... #...# .#.#. #.#.# ..#.. #...# ..#.. ..#.. ..#.. ..#.. ...#. .....",
    ".#... #...# .#.#. #.#.# .#.#. .#### .#... ..#.. ..#.. ..#.. ..... .....",
    "..##. .#### ..#.. .#.#. #...# ....# ##### ...## ..#.. ##... ..... #.#.#",
    "..... ..... ..... ..... ..... .###. ..... ..... ..... ..... ..... .....",
};

constexpr std::array<Glyph, kGlyphs> read_drawings() {
  std::array<Glyph, kGlyphs> glyphs{};
  for (int i = 0; i < kGlyphs; ++i) {
    for (int y = 0; y < kGlyphHeight; ++y) {
      const std::string_view line = kDrawings[i / kGlyphsInLine * kGlyphHeight + y];
      const std::string_view row = line.substr(i % kGlyphsInLine * (kGlyphWidth + 1), kGlyphWidth);
      for (const char pixel : row) glyphs[i][y] = glyphs[i][y] << 1 | (pixel == '#' ? 1 : 0);
    }
  }
  return glyphs;
}

constexpr std::array<Glyph, kGlyphs> kFont = read_drawings();

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// The code point and length of the character that begins the text.
std::optional<int> place_of(std::string_view text) {
  if (text.starts_with(kEllipsisText)) return kEllipsis;
  const int place = static_cast<unsigned char>(text.front()) - ' ';
  return place >= 0 && place < kEllipsis ? std::optional(place) : std::nullopt;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string_view first_characters(std::string_view text, std::size_t count) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (begins_character(text[at]) && count-- == 0) break;
  }
  return text.substr(0, at);
}

}  // namespace

std::vector<Glyph> glyphs_of(std::string_view text) {
  std::vector<Glyph> glyphs;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!begins_character(text[i])) continue;
    glyphs.push_back(kFont[place_of(text.substr(i)).value_or('?' - ' ')]);
  }
  return glyphs;
}

bool can_draw(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (begins_character(text[i]) && !place_of(text.substr(i))) return false;
  }
  return true;
}

std::string cut_text(std::string_view text, std::size_t columns) {
  if (count_characters(text) <= columns) return std::string(text);
  return std::string(first_characters(text, columns - 1)).append(kEllipsisText);
}

std::vector<std::string> wrap_text(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word.empty()) continue;
    const bool fits =
        !lines.empty() && count_characters(lines.back()) + 1 + count_characters(word) <= columns;
    if (fits) {
      lines.back().append(" ").append(word);
    } else {
      lines.push_back(cut_text(word, columns));
    }
  }
  return lines;
}

}  // namespace lockstep::report
