// A metric that is a function of sums over all samples, such as an F1 score, made from two
// functions.
//
//   task.add_metric(std::make_shared<lockstep::SumMetric>(
//       "f1", /*num_sums=*/2,
//       [](const torch::Tensor& output, const torch::Tensor& target) {
//         const torch::Tensor found = output.argmax(1);
//         return torch::stack({(found * target).sum(), found.ne(target).sum()});
//       },
//       [](const std::vector<double>& sums) { return 2 * sums[0] / (2 * sums[0] + sums[1]); }));
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/train/task/metric.h>

namespace lockstep {

/// Sums are kept in float64 on the device of the outputs. Follows the contract of metric.h.
class LOCKSTEP_API SumMetric final : public Metric {
 public:
  /// The sums of a batch, on the output's device, [num_sums]. Sums of whole numbers and sums in
  /// float64 are exact; a sum in float32 is rounded before it is added.
  using BatchSums =
      std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;
  /// Computes the metric's value from the sums over all samples of all ranks.
  using Value = std::function<double(const std::vector<double>& sums)>;

  /// Throws ConfigError if a function is empty or `num_sums` is below 1.
  SumMetric(std::string name, std::int64_t num_sums, BatchSums batch_sums, Value value,
            MetricUnit unit = MetricUnit::kNumber);
  const std::string& name() const override { return name_; }
  void reset() override;
  void update(const torch::Tensor& output, const torch::Tensor& target) override;
  std::vector<torch::Tensor> state() const override { return {sums_}; }
  std::vector<MetricValue> values() const override;

 private:
  std::string name_;
  std::int64_t num_sums_;
  BatchSums batch_sums_;
  Value value_;
  MetricUnit unit_;
  torch::Tensor sums_;  // float64 [num_sums]
};

}  // namespace lockstep
