// Arithmetic on sizes that a file claims, which may be as large as a number can be.
#pragma once

#include <cstdint>
#include <limits>

namespace lockstep::program {

/// The sum of two numbers that are not negative; the largest number if it does not fit.
constexpr std::int64_t saturated_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

/// The product of two numbers that are not negative; the largest number if it does not fit.
constexpr std::int64_t saturated_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max()
                                                : product;
}

}  // namespace lockstep::program
