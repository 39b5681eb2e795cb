#include <lockstep/report/html/stacked_bars.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <lockstep/core/strings.h>
#include <lockstep/report/html/chart_width.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

constexpr double kBarHeight = 18;
constexpr double kBarsTop = 8;
constexpr double kBarsLegendLine = 20;

// Positions of bars and names.
struct BarLayout {
  explicit BarLayout(double width)
      : names_above(is_narrow(width)),
        left(names_above ? 0 : 150),
        right(76),
        line(names_above ? kBarHeight + 24 : kBarHeight + 7),
        legend_columns(names_above ? 2 : 3) {}

  bool names_above;
  double left, right, line;
  std::size_t legend_columns;
};

std::size_t color_of(const StackedBars& chart, std::size_t part) {
  return (part < chart.colors.size() ? chart.colors[part] : part) % svg::kColors;
}

double sum_of(const StackedBar& bar) {
  return std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0);
}

std::string bar_text(const StackedBars& chart, const StackedBar& bar, const BarLayout& layout,
                     double y, double scale) {
  const double top = layout.names_above ? y + 18 : y;
  std::string text = layout.names_above
                         ? svg::text_at(0, y + 13, "", svg::fitted(bar.name, kNarrow))
                         : svg::text_at(layout.left - 8, y + kBarHeight - 5, "e",
                                        svg::fitted(bar.name, layout.left - 8));
  double x = layout.left;
  for (std::size_t i = 0; i < bar.parts.size(); ++i) {
    const double width = bar.parts[i] * scale;
    if (width <= 0) continue;
    text += str("<rect class=\"f", color_of(chart, i), "\" x=\"", svg::number(x), "\" y=\"",
                svg::number(top), "\" width=\"", svg::number(width), "\" height=\"",
                svg::number(kBarHeight), "\"><title>",
                svg::escaped(str(bar.name, ", ", chart.parts.at(i), ": ",
                                 report::significant_text(bar.parts[i]), " ", chart.unit)),
                "</title></rect>");
    x += width;
  }
  return text + svg::text_at(x + 6, top + kBarHeight - 5, "s",
                             str(report::significant_text(sum_of(bar)), " ", chart.unit));
}

}  // namespace

std::string svg_of(const StackedBars& chart, double width) {
  double longest = 0;
  for (const StackedBar& bar : chart.bars) longest = std::max(longest, sum_of(bar));
  if (!std::isfinite(longest) || longest <= 0) return "";
  const BarLayout layout(width);
  const double scale = (width - layout.left - layout.right) / longest;
  const double bars = kBarsTop + layout.line * static_cast<double>(chart.bars.size()) + 6;
  const std::size_t lines =
      (chart.parts.size() + layout.legend_columns - 1) / layout.legend_columns;
  std::string text =
      svg::opened(width, bars + kBarsLegendLine * static_cast<double>(lines), chart.title);
  double y = kBarsTop;
  for (const StackedBar& bar : chart.bars) {
    text += bar_text(chart, bar, layout, y, scale) + "\n";
    y += layout.line;
  }
  const double column = (width - layout.left) / static_cast<double>(layout.legend_columns);
  for (std::size_t i = 0; i < chart.parts.size(); ++i) {
    const double x = layout.left + column * static_cast<double>(i % layout.legend_columns);
    const double line = bars + kBarsLegendLine * static_cast<double>(i / layout.legend_columns);
    text += str("<rect class=\"f", color_of(chart, i), "\" x=\"", svg::number(x), "\" y=\"",
                svg::number(line), "\" width=\"12\" height=\"12\"/>");
    text += svg::text_at(x + 18, line + 10, "", svg::fitted(chart.parts[i], column - 22));
  }
  return text + "</svg>\n";
}

}  // namespace lockstep::html
