// Cuts a row of layers into stages of nearly the same cost.
#pragma once

#include <vector>

namespace lockstep::pipeline {

/// How many neighbouring costs each of `parts` parts gets, one at least, so that the largest sum of
/// a part is as small as it can be; the first such choice. ConfigError for fewer costs than parts,
/// for no part, and for a cost that is negative or not finite.
std::vector<int> partition(const std::vector<double>& costs, int parts);

}  // namespace lockstep::pipeline
