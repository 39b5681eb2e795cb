#include <lockstep/report/svg.h>

#include <algorithm>
#include <cmath>

#include <lockstep/core/strings.h>
#include <lockstep/formats/logged_text.h>
#include <lockstep/report/text.h>

namespace lockstep::svg {

std::string number(double value) {
  std::string text = report::fixed_text(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string escaped(std::string_view text) {
  std::string replaced;
  std::string result;
  for (const char c : formats::as_utf8(text, replaced)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        // XML does not allow control characters.
        result += static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return result;
}

std::string opened(double width, double height, std::string_view name) {
  return str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(width), ' ',
             number(height), "\" width=\"", number(width), "\" height=\"", number(height),
             "\" role=\"img\" aria-label=\"", escaped(name), "\">\n");
}

std::string style_sheet(std::string_view shapes, std::string (&colors)(const Palette&)) {
  return str("<style>\ntext{font:12px system-ui,sans-serif}", shapes, '\n',
             for_both_schemes(colors), "</style>\n");
}

std::string for_both_schemes(std::string (&colors)(const Palette&)) {
  return str(colors(kLight), "@media (prefers-color-scheme:dark){\n", colors(kDark), "}\n");
}

std::string background() { return "<rect width=\"100%\" height=\"100%\" class=\"back\"/>\n"; }

std::string text_at(double x, double y, std::string_view classes, std::string_view text) {
  return str("<text x=\"", number(x), "\" y=\"", number(y), "\" class=\"", classes, "\">",
             escaped(text), "</text>\n");
}

std::string line_between(double x1, double y1, double x2, double y2) {
  return str("<path class=\"l\" d=\"M", number(x1), " ", number(y1), "L", number(x2), " ",
             number(y2), "\"/>\n");
}

std::string rect(double x, double y, double width, double height, std::string_view classes,
                 std::string_view title) {
  const std::string head =
      str("<rect x=\"", number(x), "\" y=\"", number(y), "\" width=\"", number(width),
          "\" height=\"", number(height), "\" class=\"", classes, "\"");
  return title.empty() ? head + "/>\n" : str(head, "><title>", escaped(title), "</title></rect>\n");
}

std::string fitted(std::string_view text, double width) {
  constexpr double kCharacter = 6.7;  // pixels, for a font size of 12
  const auto most = static_cast<std::size_t>(std::max(width / kCharacter, 1.0));
  std::size_t characters = 0;
  std::size_t end = 0;  // after the second-to-last character that fits
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (!begins) continue;
    if (++characters == most) end = at;
    if (characters > most) return str(text.substr(0, end), "\u2026");
  }
  return std::string(text);
}

double distance_of_marks(double total) {
  const double mark = std::pow(10, std::floor(std::log10(total)));
  if (total / mark < 2) return mark / 5;
  return total / mark < 5 ? mark / 2 : mark;
}

}  // namespace lockstep::svg
