// How many samples of a batch each replica gets.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::data_parallel {

/// Divides `samples` in proportion to `weights`, which are positive and finite. The parts are
/// rounded down, and what is left over goes to those with the largest remainders; of equal ones the
/// earlier comes first. The first part is empty only if there are no samples.
std::vector<std::int64_t> chunk_sizes(std::int64_t samples, const std::vector<double>& weights);

}  // namespace lockstep::data_parallel
