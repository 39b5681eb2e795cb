// Cuts a sequence of layers into stages of nearly equal cost.
#pragma once

#include <vector>

namespace lockstep::pipeline {

/// Divides `costs` into `parts` consecutive parts of at least one cost each, so that the largest
/// sum of a part is minimal. Returns the number of costs in each part. Among equal choices, the
/// last part is the longest possible. Throws ConfigError for fewer costs than parts, for `parts`
/// below 1, and for a cost that is negative or not finite.
std::vector<int> partition(const std::vector<double>& costs, int parts);

}  // namespace lockstep::pipeline
