// Bars that are divided into parts, as SVG.
#pragma once

#include <string>
#include <vector>

namespace lockstep::html {

struct StackedBar {
  std::string name{};
  std::vector<double> parts{};  ///< none negative, as many as StackedBars::parts
};

struct StackedBars {
  std::string title{};
  std::string unit{};                ///< of all parts: "ms"
  std::vector<std::string> parts{};  ///< their names, in the order in which they are drawn
  std::vector<StackedBar> bars{};
};

/// The chart, a line for each bar. Each part has a title with its name and value. Empty without bars.
std::string svg_of(const StackedBars& chart);

}  // namespace lockstep::html
