#include <lockstep/parallel/pipeline/schedule/partition.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <lockstep/core/error.h>

namespace lockstep::pipeline {

// Dynamic programming: the best way to cut the first n costs into k parts ends with a part (m, n],
// preceded by the best way to cut the first m into k - 1 parts.
std::vector<int> partition(const std::vector<double>& costs, int parts) {
  const auto layers = costs.size();
  if (parts < 1 || layers < static_cast<std::size_t>(parts)) {
    throw ConfigError(str("cannot cut ", layers, " layers into ", parts, " stages"));
  }
  std::vector<double> sums{0};  // sum of the first n costs
  for (const double cost : costs) {
    if (!(cost >= 0) || !std::isfinite(cost)) {
      throw ConfigError(str("the cost of layer ", sums.size() - 1, " is ", cost));
    }
    sums.push_back(sums.back() + cost);
  }
  const auto count = static_cast<std::size_t>(parts);
  constexpr double kImpossible = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(count + 1, std::vector<double>(layers + 1, kImpossible));
  std::vector<std::vector<std::size_t>> cut(count + 1, std::vector<std::size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (std::size_t k = 1; k <= count; ++k) {
    for (std::size_t n = k; n <= layers; ++n) {
      for (std::size_t m = k - 1; m < n; ++m) {
        const double largest = std::max(best[k - 1][m], sums[n] - sums[m]);
        if (largest >= best[k][n]) continue;
        best[k][n] = largest;
        cut[k][n] = m;
      }
    }
  }
  std::vector<int> sizes(count);
  std::size_t end = layers;
  for (std::size_t k = count; k > 0; --k) {
    sizes[k - 1] = static_cast<int>(end - cut[k][end]);
    end = cut[k][end];
  }
  return sizes;
}

}  // namespace lockstep::pipeline
