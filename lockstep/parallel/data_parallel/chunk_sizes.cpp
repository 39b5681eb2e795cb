#include <lockstep/parallel/data_parallel/chunk_sizes.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace lockstep::detail::data_parallel {

std::vector<std::int64_t> chunk_sizes(std::int64_t samples, const std::vector<double>& weights) {
  // Divides by a power of two, which is exact, so that the largest weight is below 1: otherwise the
  // sum of large weights could be infinite.
  int exponent = 0;
  if (!weights.empty()) std::frexp(*std::max_element(weights.begin(), weights.end()), &exponent);
  const auto scaled = [&](double weight) { return std::ldexp(weight, -exponent); };
  double total = 0;
  for (const double weight : weights) total += scaled(weight);
  std::vector<std::int64_t> sizes;
  std::vector<double> remainders;
  std::int64_t left = samples;
  for (const double weight : weights) {
    const double share = static_cast<double>(samples) * scaled(weight) / total;
    const auto size = std::min(left, static_cast<std::int64_t>(std::floor(share)));
    sizes.push_back(size);
    remainders.push_back(share - static_cast<double>(size));
    left -= size;
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size()) {
    ++sizes[order[i]];
    --left;
  }
  // The first replica writes the module's buffers (running statistics), so it must see every batch.
  if (samples > 0 && sizes.front() == 0) {
    --*std::max_element(sizes.begin(), sizes.end());
    sizes.front() = 1;
  }
  return sizes;
}

}  // namespace lockstep::detail::data_parallel
