#include <lockstep/report/html/line_chart.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <lockstep/core/strings.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 300;
constexpr double kLeft = 70;
constexpr double kRight = 16;
constexpr double kTop = 16;
constexpr double kBottom = 46;
constexpr double kLegendLine = 18;

// Where values lie on the picture.
struct Scale {
  double low = 0;
  double high = 1;
  double begin = 0;
  double end = 1;

  double at(double value) const { return begin + (value - low) / (high - low) * (end - begin); }
};

// The values of all points, by `pick`; nothing below `low`.
template <class Pick>
Scale scale_of(const LineChart& chart, const Pick& pick, double begin, double end, bool from_zero) {
  double low = from_zero ? 0 : std::numeric_limits<double>::max();
  double high = from_zero ? 0 : std::numeric_limits<double>::lowest();
  for (const Curve& curve : chart.curves) {
    for (const auto& point : curve.points) {
      low = std::min(low, pick(point));
      high = std::max(high, pick(point));
    }
  }
  if (high <= low) high = low + 1;
  return {.low = low, .high = high, .begin = begin, .end = end};
}

// "0.25", "1,200": as many digits as neighbouring marks need.
std::string mark_text(double value, double distance) {
  if (distance >= 1) return count_text(value);
  return fixed_text(value, static_cast<int>(std::ceil(-std::log10(distance))));
}

std::string marks(const Scale& x, const Scale& y, const LineChart& chart) {
  std::string text;
  const double y_distance = svg::distance_of_marks(y.high - y.low);
  for (double mark = std::ceil(y.low / y_distance) * y_distance; mark <= y.high + y_distance * 1e-9;
       mark += y_distance) {
    text += svg::line_between(kLeft, y.at(mark), kWidth - kRight, y.at(mark));
    text += svg::text_at(kLeft - 8, y.at(mark) + 4, "s e", mark_text(mark, y_distance));
  }
  const double x_distance = std::max(svg::distance_of_marks(x.high - x.low), 1.0);
  for (double mark = std::ceil(x.low / x_distance) * x_distance; mark <= x.high + x_distance * 1e-9;
       mark += x_distance) {
    text += svg::text_at(x.at(mark), kHeight - kBottom + 18, "s m", mark_text(mark, x_distance));
  }
  text += svg::text_at((kLeft + kWidth - kRight) / 2, kHeight - kBottom + 36, "s m", chart.x_label);
  text += str("<text class=\"s m\" transform=\"translate(14 ", svg::number((kTop + kHeight - kBottom) / 2),
              ") rotate(-90)\">", svg::escaped(chart.y_label), "</text>\n");
  return text;
}

std::string curve_text(const Curve& curve, std::size_t color, const Scale& x, const Scale& y,
                       const LineChart& chart) {
  std::string path;
  std::string points;
  for (const auto& [at, value] : curve.points) {
    path += str(path.empty() ? "M" : "L", svg::number(x.at(at)), " ", svg::number(y.at(value)));
    points += str("<circle class=\"f", color, "\" cx=\"", svg::number(x.at(at)), "\" cy=\"",
                  svg::number(y.at(value)), "\" r=\"3\"><title>",
                  svg::escaped(str(curve.name, ", ", chart.x_label, " ", at, ": ", value)),
                  "</title></circle>");
  }
  return str("<path class=\"a k", color, curve.is_dashed ? " o" : "", "\" d=\"", path, "\"/>", points,
             "\n");
}

}  // namespace

std::string svg_of(const LineChart& chart) {
  const bool has_points = std::ranges::any_of(
      chart.curves, [](const Curve& curve) { return !curve.points.empty(); });
  if (!has_points) return "";
  const double legend = chart.curves.size() > 1 ? kLegendLine * static_cast<double>(chart.curves.size()) : 0;
  const Scale x = scale_of(chart, [](const auto& point) { return point.first; }, kLeft,
                           kWidth - kRight, false);
  const Scale y = scale_of(chart, [](const auto& point) { return point.second; }, kHeight - kBottom,
                           kTop, chart.from_zero);
  std::string text = svg::opened(kWidth, kHeight + legend, chart.title);
  text += marks(x, y, chart);
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const std::size_t color = i % svg::kColors;
    text += curve_text(chart.curves[i], color, x, y, chart);
    if (chart.curves.size() == 1) continue;
    const double line = kHeight + kLegendLine * (static_cast<double>(i) + 0.5);
    text += str("<path class=\"a k", color, chart.curves[i].is_dashed ? " o" : "", "\" d=\"M",
                svg::number(kLeft), " ", svg::number(line), "h24\"/>");
    text += svg::text_at(kLeft + 32, line + 4, "", chart.curves[i].name);
  }
  return text + "</svg>\n";
}

}  // namespace lockstep::html
