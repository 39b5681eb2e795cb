// How the training speed grows with the number of ranks, compared with the ideal.
#pragma once

#include <string>
#include <vector>

#include <lockstep/report/html/page_parts.h>
#include <lockstep/report/html/table_rows.h>

namespace lockstep::html {

/// The speed of one strategy on one workload.
struct ScalingCurve {
  std::string name{};             ///< "ddp: mnist, loader native, ..., batch 64 a rank"
  std::vector<RankRate> rates{};  ///< the best for each number of ranks, sorted; at least two
  /// Speed relative to one rank: rates[i] / rates[0], multiplied by the number of ranks of
  /// rates[0].
  double speedup(std::size_t i) const;
};

/// A curve for each strategy and workload for which `rates` has at least two numbers of ranks with
/// the same batch a rank, and one for those with the same batch over all ranks: one with other
/// batches would compare different work. A rate of "single" serves as the one-rank rate of
/// strategies that have none. Rates of no ranks are left out.
std::vector<ScalingCurve> scaling_curves(const std::vector<RankRate>& rates);

/// The figure with the curves and the line of ideal scaling. Empty without curves.
std::string scaling_figure(const std::vector<RankRate>& rates, const Commands& commands);

}  // namespace lockstep::html
