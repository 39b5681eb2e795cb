#include <lockstep/data/samplers/data_partitioner.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <numeric>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/data/samplers/epoch_generator.h>

namespace lockstep {
namespace {

// Above the rounding error of a sum of ten thousand fractions, and far less than an image.
constexpr double kTolerance = 1e-9;

void check_fractions(std::int64_t dataset_size, const std::vector<double>& fractions) {
  const OptionCheck check("DataPartitioner");
  check.at_least("dataset_size", static_cast<double>(dataset_size), 1);
  check.at_least("the number of fractions", static_cast<double>(fractions.size()), 1);
  for (std::size_t i = 0; i < fractions.size(); ++i) {
    check.positive(lockstep::str("fractions[", i, "]"), fractions[i]);
  }
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  if (sum > 1 + kTolerance) {
    throw ConfigError(lockstep::str("DataPartitioner: fractions must sum to at most 1, got ",
                                    std::setprecision(12), sum));
  }
}

}  // namespace

DataPartitioner::DataPartitioner(std::int64_t dataset_size, const std::vector<double>& fractions,
                                 std::uint64_t seed)
    : dataset_size_(dataset_size), seed_(seed) {
  check_fractions(dataset_size, fractions);
  const auto images = static_cast<double>(dataset_size);
  double sum = 0;
  std::int64_t begin = 0;
  for (const double fraction : fractions) {
    sum += fraction;
    // The tolerance lets 0.7 + 0.1, a little less than 0.8, end where 0.8 would.
    const double end = std::min(images, std::floor(images * (sum + kTolerance)));
    ends_.push_back(static_cast<std::int64_t>(end));
    if (ends_.back() == begin) {
      throw ConfigError(lockstep::str("DataPartitioner: fractions[", ends_.size() - 1,
                                      "] = ", fraction, " of ", dataset_size,
                                      " images is less than one image"));
    }
    begin = ends_.back();
  }
}

DataPartitioner DataPartitioner::equal(std::int64_t dataset_size, int count, std::uint64_t seed) {
  const OptionCheck check("DataPartitioner");
  check.at_least("dataset_size", static_cast<double>(dataset_size), 1);
  check.in_range("count", count, 1, static_cast<double>(dataset_size));
  return DataPartitioner(dataset_size, std::vector<double>(count, 1.0 / count), seed);
}

std::vector<std::int64_t> DataPartitioner::use(int partition) const {
  const OptionCheck check("DataPartitioner::use");
  check.in_range("partition", partition, 0, size() - 1);
  const std::vector<std::int64_t> order = data::random_permutation(dataset_size_, seed_, 0);
  const std::int64_t begin = partition == 0 ? 0 : ends_[partition - 1];
  return {order.begin() + begin, order.begin() + ends_[partition]};
}

}  // namespace lockstep
