// The colours of phases, used consistently throughout the report.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::html {

/// A colour of svg::Palette for a phase of a step, a part of its critical path, or a kind of span.
inline std::size_t phase_color(const std::string& name) {
  struct Colored {
    const char* name;
    std::size_t color;
  };
  constexpr Colored kColors[] = {{"forward", 0},
                                 {"communication", 1},
                                 {"exposed communication", 1},
                                 {"transfer", 1},
                                 {"message", 1},
                                 {"backward", 2},
                                 {"optimizer", 3},
                                 {"zero gradients", 4},
                                 {"finite check", 4},
                                 {"first batch", 4},
                                 {"data", 5},
                                 {"wait for data", 5},
                                 {"broadcast buffers", 7},
                                 {"waits for a rank", 7},
                                 {"reduce gradients", 7},
                                 {"waits for a stage", 7}};
  for (const Colored& each : kColors) {
    if (name == each.name) return each.color;
  }
  constexpr std::size_t kOther = 6;
  return kOther;
}

inline std::vector<std::size_t> phase_colors(const std::vector<std::string>& names) {
  std::vector<std::size_t> colors;
  for (const std::string& name : names) colors.push_back(phase_color(name));
  return colors;
}

}  // namespace lockstep::html
