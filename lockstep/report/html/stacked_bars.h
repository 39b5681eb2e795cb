// Stacked bars, as SVG.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::html {

struct StackedBar {
  std::string name{};
  std::vector<double> parts{};  ///< one for each of StackedBars::parts, not negative
};

struct StackedBars {
  std::string title{};
  std::string unit{};                ///< unit of all parts: "ms"
  std::vector<std::string> parts{};  ///< their names, in drawing order
  std::vector<StackedBar> bars{};
  std::vector<std::size_t> colors{};  ///< colors of the parts, 0 to 7; empty: in order
};

/// The chart, `width` pixels wide, with a line for each bar. Each part has a title with its name
/// and value. Empty if all bars have zero length.
std::string svg_of(const StackedBars& chart, double width);

}  // namespace lockstep::html
