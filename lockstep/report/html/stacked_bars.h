// Bars that are divided into parts, as SVG.
#pragma once

#include <cstddef>
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
  std::vector<std::size_t> colors{};  ///< of the parts, 0 to 7; empty: one after the other
};

/// The chart, `width` pixels wide, a line for each bar. Each part has a title with its name and
/// value. Empty without a bar that has a
/// length.
std::string svg_of(const StackedBars& chart, double width);

}  // namespace lockstep::html
