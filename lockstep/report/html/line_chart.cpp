#include <lockstep/report/html/line_chart.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include <lockstep/core/strings.h>
#include <lockstep/report/html/chart_width.h>
#include <lockstep/report/svg.h>
#include <lockstep/report/text.h>

namespace lockstep::html {
namespace {

constexpr double kCurvesHeight = 290;
constexpr double kCurvesLeft = 64;
constexpr double kCurvesRight = 16;
constexpr double kCurvesTop = 30;
constexpr double kCurvesBottom = 46;
constexpr double kCurvesLegendLine = 20;
constexpr double kMarkWidth = 46;       // minimum pixels between marks of the x axis
constexpr std::size_t kMostDots = 120;  // longer curves are drawn without dots

// Maps values to positions in the picture.
struct AxisScale {
  double low = 0;
  double high = 1;
  double begin = 0;
  double end = 1;

  double at(double value) const { return begin + (value - low) / (high - low) * (end - begin); }
};

// Values that differ only by rounding count as equal: a double has no room for marks between them.
AxisScale scale_of(double low, double high, double begin, double end) {
  constexpr double kRounding = 1e-12;
  constexpr double kSmallest = 1e-300;
  const double size = std::max(std::abs(low), std::abs(high));
  if (!(high - low > std::max(kRounding * size, kSmallest))) {
    const double margin = size <= kSmallest ? 1 : size / 100;
    low -= margin;
    high += margin;
  }
  return {.low = low, .high = high, .begin = begin, .end = end};
}

struct ChartScales {
  AxisScale x{};
  AxisScale y{};
};

ChartScales scales_of(const LineChart& chart, double width) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double low_x = kInfinity, high_x = -kInfinity, low_y = kInfinity, high_y = -kInfinity;
  for (const Curve& curve : chart.curves) {
    for (const auto& [x, y] : curve.points) {
      low_x = std::min(low_x, x);
      high_x = std::max(high_x, x);
      low_y = std::min(low_y, y);
      high_y = std::max(high_y, y);
    }
  }
  constexpr double kAir = 0.06;
  const double air = (high_y - low_y) * kAir;
  if (chart.from_zero) {
    low_y = std::min(low_y, 0.0);
    high_y = std::max(high_y + air, 0.0);
    if (high_y <= low_y) high_y = low_y + 1;
  } else {
    low_y -= air;
    high_y += air;
  }
  return {.x = scale_of(low_x, high_x, kCurvesLeft, width - kCurvesRight),
          .y = scale_of(low_y, high_y, kCurvesHeight - kCurvesBottom, kCurvesTop)};
}

// "0.25", "1,200": with as many digits as neighbouring marks need.
std::string mark_text(double value, double distance) {
  if (distance >= 1) return report::count_text(value);
  constexpr int kMostDigits = 6;
  if (distance < 1e-6) return str(value);
  return report::fixed_text(
      value, std::min(kMostDigits, static_cast<int>(std::ceil(-std::log10(distance)))));
}

// The marks of an axis, starting with the first one that is not below `scale.low`.
std::vector<double> marks_of(const AxisScale& scale, double distance) {
  std::vector<double> marks;
  const double tolerance = distance * 1e-9;
  for (double mark = std::ceil(scale.low / distance - 1e-9);
       mark * distance <= scale.high + tolerance; ++mark) {
    marks.push_back(mark == 0 ? 0 : mark * distance);  // avoids -0
  }
  return marks;
}

// The distance of marks that leaves enough room between them.
double y_distance_of(double range, double least) {
  constexpr double kMostMarks = 6;
  double distance = std::max(svg::distance_of_marks(range), least);
  while (range / distance > kMostMarks) distance *= 2;
  return distance;
}

std::string axes_text(const ChartScales& scales, const LineChart& chart, double width) {
  std::string text;
  const double y_distance =
      y_distance_of(scales.y.high - scales.y.low, chart.whole_numbers ? 1 : 0);
  for (const double mark : marks_of(scales.y, y_distance)) {
    const double y = scales.y.at(mark);
    text += svg::line_between(kCurvesLeft, y, width - kCurvesRight, y);
    text += svg::text_at(kCurvesLeft - 8, y + 4, "s e", mark_text(mark, y_distance));
  }
  double x_distance = std::max(svg::distance_of_marks(scales.x.high - scales.x.low), 1.0);
  const double most_marks = (width - kCurvesLeft - kCurvesRight) / kMarkWidth;
  while ((scales.x.high - scales.x.low) / x_distance > most_marks) x_distance *= 2;
  for (const double mark : marks_of(scales.x, x_distance)) {
    text += svg::text_at(scales.x.at(mark), kCurvesHeight - kCurvesBottom + 18, "s m",
                         mark_text(mark, x_distance));
  }
  text += svg::text_at((kCurvesLeft + width - kCurvesRight) / 2, kCurvesHeight - kCurvesBottom + 38,
                       "s m", chart.x_label);
  text += svg::text_at(0, 14, "s", svg::fitted(chart.y_label, width));
  return text;
}

std::string curve_text(const Curve& curve, const ChartScales& scales, const LineChart& chart) {
  std::string path;
  std::string dots;
  for (const auto& [at, value] : curve.points) {
    const std::string x = svg::number(scales.x.at(at));
    const std::string y = svg::number(scales.y.at(value));
    path += str(path.empty() ? "M" : "L", x, " ", y);
    const auto ring = curve.rings.find(at);
    const bool is_ring = ring != curve.rings.end();
    if (curve.points.size() > kMostDots && !is_ring) continue;
    const std::string remark = is_ring ? str(" (", ring->second, ")") : "";
    dots += str("<circle class=\"", is_ring ? "h k" : "f", curve.color, "\" cx=\"", x, "\" cy=\"",
                y, "\" r=\"3.5\"><title>",
                svg::escaped(str(curve.name, ", ", chart.x_label, " ", at, ": ", value, remark)),
                "</title></circle>");
  }
  return str("<path class=\"a k", curve.color, curve.is_dashed ? " o" : "", "\" d=\"", path, "\"/>",
             dots, "\n");
}

// The values beside the dots of a chart whose curves have one point each, as in a run of one epoch:
// their places on an axis alone would not tell them.
std::string single_values_text(const LineChart& chart, const ChartScales& scales) {
  const auto has_one = [](const Curve& curve) { return curve.points.size() == 1; };
  if (!std::ranges::all_of(chart.curves, has_one)) return "";
  struct Label {
    double x = 0;
    double y = 0;
    std::string text{};
  };
  std::vector<Label> labels;
  for (const Curve& curve : chart.curves) {
    const auto& [at, value] = curve.points.front();
    labels.push_back(
        {.x = scales.x.at(at), .y = scales.y.at(value), .text = report::significant_text(value)});
  }
  std::ranges::stable_sort(labels, {}, &Label::y);
  constexpr double kDistance = 14;  // between two lines
  std::string text;
  double above = -kDistance;
  for (const Label& label : labels) {
    above = std::max(label.y, above + kDistance);
    text += svg::text_at(label.x + 9, above + 4, "", label.text);
  }
  return text;
}

// `text` broken into lines that fit.
std::vector<std::string> wrapped(const std::string& text, double width) {
  std::vector<std::string> lines = {""};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::string longer = lines.back().empty() ? word : str(lines.back(), " ", word);
    if (lines.back().empty() || svg::fitted(longer, width) == longer) {
      lines.back() = longer;
    } else {
      lines.push_back(word);
    }
  }
  for (std::string& line : lines) line = svg::fitted(line, width);
  return lines;
}

struct Legend {
  std::string text{};
  double height = 0;
};

// The first curve of which a point is drawn as a ring; null if there is none.
const Curve* curve_with_ring(const LineChart& chart) {
  const auto has_ring = [](const Curve& curve) {
    return std::ranges::any_of(
        curve.points, [&](const auto& point) { return curve.rings.contains(point.first); });
  };
  const auto found = std::ranges::find_if(chart.curves, has_ring);
  return found == chart.curves.end() ? nullptr : &*found;
}

// The legend below the chart: a line for each of several curves, and one for the rings.
Legend legend_of(const LineChart& chart, double width) {
  const Curve* const ringed = curve_with_ring(chart);
  if (chart.curves.size() < 2 && ringed == nullptr) return {};
  const double left = is_narrow(width) ? 0 : kCurvesLeft;
  constexpr double kStroke = 32;
  constexpr double kWrappedLine = 15;
  std::string text;
  double y = kCurvesHeight + kCurvesLegendLine / 2;
  const auto add_name = [&](const std::string& name) {
    for (const std::string& line : wrapped(name, width - left - kStroke)) {
      text += svg::text_at(left + kStroke, y + 4, "", line);
      y += kWrappedLine;
    }
    y += kCurvesLegendLine - kWrappedLine;
  };
  if (chart.curves.size() > 1) {
    for (const Curve& curve : chart.curves) {
      text += str("<path class=\"a k", curve.color, curve.is_dashed ? " o" : "", "\" d=\"M",
                  svg::number(left), " ", svg::number(y), "h24\"/>");
      add_name(curve.name);
    }
  }
  if (ringed != nullptr) {
    text += str("<circle class=\"h k", ringed->color, "\" cx=\"", svg::number(left + 12),
                "\" cy=\"", svg::number(y), "\" r=\"3.5\"/>");
    add_name(chart.ring_meaning);
  }
  return {.text = std::move(text), .height = y - kCurvesLegendLine / 2 - kCurvesHeight};
}

// Assigns colours, and removes non-finite points and curves without finite points.
LineChart drawable(LineChart chart) {
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    Curve& curve = chart.curves[i];
    if (curve.color < 0) curve.color = static_cast<int>(i);
    curve.color %= static_cast<int>(svg::kColors);
    std::erase_if(curve.points, [](const auto& point) {
      return !std::isfinite(point.first) || !std::isfinite(point.second);
    });
  }
  std::erase_if(chart.curves, [](const Curve& curve) { return curve.points.empty(); });
  return chart;
}

}  // namespace

std::string svg_of(const LineChart& given, double width) {
  const LineChart chart = drawable(given);
  if (chart.curves.empty()) return "";
  const ChartScales scales = scales_of(chart, width);
  const Legend legend = legend_of(chart, width);
  std::string text = svg::opened(width, kCurvesHeight + legend.height, chart.title);
  text += axes_text(scales, chart, width);
  for (const Curve& curve : chart.curves) text += curve_text(curve, scales, chart);
  text += single_values_text(chart, scales);
  return text + legend.text + "</svg>\n";
}

}  // namespace lockstep::html
