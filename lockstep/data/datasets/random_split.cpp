#include <lockstep/data/datasets/random_split.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <numeric>
#include <sstream>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/samplers/epoch_generator.h>

namespace lockstep {
namespace {

constexpr double kSumTolerance = 1e-9;  // the tolerance of Python's math.isclose

std::vector<std::int64_t> lengths_of(std::int64_t size, const std::vector<double>& fractions) {
  const OptionCheck check("random_split");
  for (std::size_t i = 0; i < fractions.size(); ++i) {
    check.in_range(lockstep::str("fractions[", i, "]"), fractions[i], 0, 1);
  }
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  if (!(sum >= 1 - kSumTolerance && sum <= 1)) {
    std::ostringstream exact;  // 1.0000000000000002 would print as 1
    exact << std::setprecision(std::numeric_limits<double>::max_digits10) << sum;
    throw ConfigError(lockstep::str("random_split: the sum of fractions must be 1, got ",
                                    exact.str(), "; correct them, or give lengths"));
  }
  std::vector<std::int64_t> lengths;
  for (const double fraction : fractions) {
    lengths.push_back(static_cast<std::int64_t>(std::floor(static_cast<double>(size) * fraction)));
  }
  const std::int64_t given = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < size - given; ++i) {
    ++lengths[static_cast<std::size_t>(i) % lengths.size()];
  }
  return lengths;
}

}  // namespace

std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                       const std::vector<std::int64_t>& lengths,
                                       std::uint64_t seed) {
  std::int64_t left = dataset.size();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1) {
      throw ConfigError(lockstep::str("random_split: part ", i, " of ", dataset.name(), " gets ",
                                      lengths[i], " images, expected at least 1"));
    }
    left -= std::min(lengths[i], left + 1);  // once below 0, it stays below 0
  }
  if (left != 0 || lengths.empty()) {
    throw ConfigError(lockstep::str("random_split: lengths must sum to the ", dataset.size(),
                                    " images of ", dataset.name(), ", got ", join(lengths)));
  }
  const std::vector<std::int64_t> order = data::random_permutation(dataset.size(), seed, 0);
  std::vector<ImageDataset> parts;
  auto begin = order.begin();
  for (const std::int64_t length : lengths) {
    parts.push_back(subset(dataset, {begin, begin + length}));
    begin += length;
  }
  return parts;
}

std::vector<ImageDataset> random_split(const ImageDataset& dataset,
                                       const std::vector<double>& fractions, std::uint64_t seed) {
  return random_split(dataset, lengths_of(dataset.size(), fractions), seed);
}

}  // namespace lockstep
