// How the speed of training grows with the ranks, against the ideal.
#pragma once

#include <string>
#include <vector>

#include <lockstep/report/html/page_parts.h>
#include <lockstep/report/html/table_rows.h>

namespace lockstep::html {

/// One strategy doing one work.
struct ScalingCurve {
  std::string name{};             ///< "ddp: mnist, loader native, 1 thread a rank"
  std::vector<RankRate> rates{};  ///< the best of each number of ranks, by ranks; at least two
  /// Times the rate of one rank: rates[i] over rates[0], times its ranks.
  double speedup(std::size_t i) const;
};

/// The strategies that `rates` has with at least two numbers of ranks. "single" is what every
/// strategy is with one rank, where it has no row of its own.
std::vector<ScalingCurve> scaling_curves(const std::vector<RankRate>& rates);

/// The figure with the curves and the line of runs that lose nothing. Empty without curves.
std::string scaling_figure(const std::vector<RankRate>& rates, const Commands& commands);

}  // namespace lockstep::html
