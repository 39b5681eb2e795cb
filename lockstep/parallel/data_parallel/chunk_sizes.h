// The number of samples of a batch that each replica gets.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::detail::data_parallel {

/// Divides `samples` in proportion to `weights`, which are positive and finite. The parts are
/// rounded down, and the remaining samples go to those with the largest remainders, earlier parts
/// first among equals. The first part is empty only if there are no samples.
std::vector<std::int64_t> chunk_sizes(std::int64_t samples, const std::vector<double>& weights);

}  // namespace lockstep::detail::data_parallel
