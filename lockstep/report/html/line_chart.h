// A chart of curves with a common x axis, as SVG.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::html {

struct Curve {
  std::string name{};
  /// Sorted by x. Points that are not finite are not drawn.
  std::vector<std::pair<double, double>> points{};
  bool is_dashed = false;  ///< for an ideal or a secondary value
  int color = -1;          ///< 0 to 7; -1: the chart's next colour
  /// Points that are drawn as rings, by x, each with a remark for its title.
  std::map<double, std::string> rings{};
};

struct LineChart {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  std::vector<Curve> curves{};
  bool from_zero = true;  ///< whether the y axis begins at 0 rather than near the smallest value
  bool whole_numbers = false;  ///< whether the y axis has marks at whole numbers only
  std::string ring_meaning{};  ///< what a ring means, for the legend
};

/// The chart, `width` pixels wide, legible on light and dark backgrounds. Each point has a title
/// with its values. Curves of more than 120 points have no dots, only rings. If each curve has one
/// point, the values stand beside the points. Colours repeat after the eighth curve. Empty if no
/// curve has a point.
std::string svg_of(const LineChart& chart, double width);

}  // namespace lockstep::html
