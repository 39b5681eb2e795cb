// Cuts a sequence of layers into stages of nearly equal cost.
#pragma once

#include <vector>

namespace lockstep::pipeline {

/// Returns how many consecutive costs, at least one, each of `parts` parts gets, such that the
/// largest sum of a part is minimal; the first such choice. ConfigError for fewer costs than parts,
/// for `parts` below 1, and for a cost that is negative or not finite.
std::vector<int> partition(const std::vector<double>& costs, int parts);

}  // namespace lockstep::pipeline
