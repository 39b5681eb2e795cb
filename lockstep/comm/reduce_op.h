// How a reduction combines the values of the ranks.
#pragma once

#include <cstdint>

namespace lockstep {

enum class ReduceOp : std::uint8_t {
  kSum,
  kAverage,  ///< the sum divided by the number of ranks; floating-point types only
};

}  // namespace lockstep
