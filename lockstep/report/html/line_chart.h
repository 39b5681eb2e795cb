// Curves over one axis, as SVG.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::html {

struct Curve {
  std::string name{};
  std::vector<std::pair<double, double>> points{};  ///< x ascending; y finite
  bool is_dashed = false;                           ///< of an ideal, not a measurement
};

struct LineChart {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  std::vector<Curve> curves{};
  bool from_zero = true;  ///< the y axis begins at 0, not at the smallest value
};

/// The chart, at most 720 pixels wide and as narrow as its place, legible on light and dark screens.
/// Each point has a title with its values. Curves beyond the eighth begin with the first colour again.
/// Empty where no curve has a point.
std::string svg_of(const LineChart& chart);

}  // namespace lockstep::html
