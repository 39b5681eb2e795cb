// The bubbles predicted by the papers' formulas, for comparison with replay.h and with
// measurements.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::pipeline {

struct BubbleFormula {
  std::string text{};  ///< p is the number of workers, m of micro-batches, v of stages per worker.
  double bubble = 0;   ///< Like Timeline::bubble(): the idle share of all workers' time, 0 to 1.
};

/// The formula of `schedule`, a name that schedule_of() knows. It assumes that a forward, the
/// gradients of inputs and those of weights take equally long, that a whole backward takes twice as
/// long, and that messages take no time.
///
/// Empty for other names and where no formula holds: for interleaved if `workers` does not divide
/// `micro_batches`, for zb-h1 with fewer micro-batches than workers, and for zbv with fewer
/// micro-batches than 2 p - 1. Throws ConfigError for numbers below 1.
std::optional<BubbleFormula> bubble_formula(std::string_view schedule, int workers,
                                            int micro_batches, int stages_per_worker = 2);

}  // namespace lockstep::pipeline
