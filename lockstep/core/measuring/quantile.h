// Medians and quartiles of measured values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

/// A quantile of values in any order, interpolated linearly between neighbours like numpy.quantile.
/// 0 without values.
inline double quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace lockstep
