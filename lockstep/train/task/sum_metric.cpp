#include <lockstep/train/task/sum_metric.h>

#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/options.h>
#include <lockstep/core/strings.h>

namespace lockstep {

SumMetric::SumMetric(std::string name, std::int64_t num_sums, BatchSums batch_sums, Value value,
                     MetricUnit unit)
    : name_(std::move(name)),
      num_sums_(num_sums),
      batch_sums_(std::move(batch_sums)),
      value_(std::move(value)),
      unit_(unit) {
  OptionCheck("metric " + name_).at_least("num_sums", static_cast<double>(num_sums_), 1);
  if (!batch_sums_ || !value_) {
    throw ConfigError(lockstep::str("metric ", name_, ": a function is empty"));
  }
  reset();
}

void SumMetric::reset() { sums_ = torch::zeros({num_sums_}, torch::kFloat64); }

void SumMetric::update(const torch::Tensor& output, const torch::Tensor& target) {
  const torch::Tensor sums = batch_sums_(output, target);
  if (sums.dim() != 1 || sums.size(0) != num_sums_) {
    throw ConfigError(lockstep::str("metric ", name_, ": the sums of a batch have shape ",
                                    sums.sizes(), ", expected [", num_sums_, "]"));
  }
  sums_ = sums_.to(sums.device()).add_(sums);
}

std::vector<MetricValue> SumMetric::values() const {
  const torch::Tensor sums = sums_.cpu();
  const double* const numbers = sums.const_data_ptr<double>();
  return {{.name = name_, .value = value_({numbers, numbers + num_sums_}), .unit = unit_}};
}

}  // namespace lockstep
