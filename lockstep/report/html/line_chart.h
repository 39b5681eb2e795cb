// Curves over one axis, as SVG.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::html {

struct Curve {
  std::string name{};
  /// By x, ascending. Points that are no finite numbers are not drawn.
  std::vector<std::pair<double, double>> points{};
  bool is_dashed = false;  ///< of an ideal or a second kind of value
  int color = -1;          ///< 0 to 7; -1: the next one of the chart
};

struct LineChart {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  std::vector<Curve> curves{};
  bool from_zero = true;       ///< the y axis begins at 0, not near the smallest value
  bool whole_numbers = false;  ///< the y axis has no marks between 1 and 2
};

/// The chart, `width` pixels wide, legible on light and dark screens. Each point has a title with
/// its values. Curves beyond the eighth begin with the first colour again. Empty where no curve has
/// a point.
std::string svg_of(const LineChart& chart, double width);

}  // namespace lockstep::html
