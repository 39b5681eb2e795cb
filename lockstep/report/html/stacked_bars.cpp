#include <lockstep/report/html/stacked_bars.h>

#include <algorithm>
#include <numeric>

#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

constexpr double kWidth = 720;
constexpr double kLeft = 130;
constexpr double kRight = 70;
constexpr double kBar = 18;
constexpr double kBetween = 6;
constexpr double kTop = 8;
constexpr double kLegendLine = 18;
constexpr std::size_t kLegendColumns = 3;

double sum_of(const StackedBar& bar) {
  return std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0);
}

std::string value_text(double value) { return fixed_text(value, value < 10 ? 2 : 1); }

}  // namespace

std::string svg_of(const StackedBars& chart) {
  double longest = 0;
  for (const StackedBar& bar : chart.bars) longest = std::max(longest, sum_of(bar));
  if (longest <= 0) return "";
  const double scale = (kWidth - kLeft - kRight) / longest;
  const double bars = kTop + (kBar + kBetween) * static_cast<double>(chart.bars.size());
  const std::size_t lines = (chart.parts.size() + kLegendColumns - 1) / kLegendColumns;
  std::string text = svg::opened(kWidth, bars + kLegendLine * static_cast<double>(lines) + 8, chart.title);
  double y = kTop;
  for (const StackedBar& bar : chart.bars) {
    text += svg::text_at(kLeft - 8, y + kBar - 5, "e", bar.name);
    double x = kLeft;
    for (std::size_t i = 0; i < bar.parts.size(); ++i) {
      const double width = bar.parts[i] * scale;
      text += str("<rect class=\"f", i % svg::kColors, "\" x=\"", svg::number(x), "\" y=\"", svg::number(y),
                  "\" width=\"", svg::number(width), "\" height=\"", svg::number(kBar), "\"><title>",
                  svg::escaped(str(bar.name, ", ", chart.parts.at(i), ": ", value_text(bar.parts[i]), " ",
                                   chart.unit)),
                  "</title></rect>");
      x += width;
    }
    text += svg::text_at(x + 6, y + kBar - 5, "s", str(value_text(sum_of(bar)), " ", chart.unit)) + "\n";
    y += kBar + kBetween;
  }
  const double column = (kWidth - kLeft) / static_cast<double>(kLegendColumns);
  for (std::size_t i = 0; i < chart.parts.size(); ++i) {
    const double left = kLeft + column * static_cast<double>(i % kLegendColumns);
    const double line = bars + kLegendLine * static_cast<double>(i / kLegendColumns) + 4;
    text += str("<rect class=\"f", i % svg::kColors, "\" x=\"", svg::number(left), "\" y=\"",
                svg::number(line), "\" width=\"12\" height=\"12\"/>");
    text += svg::text_at(left + 18, line + 10, "", chart.parts[i]);
  }
  return text + "</svg>\n";
}

}  // namespace lockstep::html
