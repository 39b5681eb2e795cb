// Checks whether numbers are drawn from the expected distribution. Seeds are fixed, so a test that
// passes always passes; about one seed in a thousand would fail.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace lockstep::testing_support {

/// The largest distance between the empirical distribution of the samples and `cdf`, in units of
/// the distance that one in a thousand sets of samples exceeds (Kolmogorov, Smirnov).
template <class Cdf>
double kolmogorov_smirnov(std::vector<double> samples, const Cdf& cdf) {
  std::sort(samples.begin(), samples.end());
  const auto count = static_cast<double>(samples.size());
  double distance = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double expected = cdf(samples[i]);
    distance = std::max({distance, std::abs(expected - static_cast<double>(i) / count),
                         std::abs(expected - static_cast<double>(i + 1) / count)});
  }
  return distance * std::sqrt(count) / 1.95;
}

/// The distance from the uniform distribution between `low` and `high`.
inline double distance_from_uniform(const std::vector<double>& samples, double low, double high) {
  return kolmogorov_smirnov(
      samples, [&](double x) { return std::clamp((x - low) / (high - low), 0.0, 1.0); });
}

/// Pearson's chi-square of counts that should be equal, in units of the value that one in a
/// thousand sets of counts exceeds (Wilson, Hilferty).
inline double chi_square(const std::vector<int>& counts) {
  double total = 0;
  for (const int count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  const auto freedom = static_cast<double>(counts.size() - 1);
  const double variance = 2 / (9 * freedom);
  return sum / (freedom * std::pow(1 - variance + 3.09 * std::sqrt(variance), 3));
}

}  // namespace lockstep::testing_support
