// Collects the results of an evaluation: sums over samples, which give exact means over all ranks,
// and metrics with a state of their own.
//
//   void evaluation_step(const Batch& batch, Metrics& metrics) override {
//     const torch::Tensor output = net_->forward(batch.images);
//     metrics.add("loss", mse_loss(output, batch.labels), batch.size);
//     metrics.add("psnr", mean_psnr(output, batch.labels), batch.size);
//   }
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/export.h>
#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/metric.h>

namespace lockstep {

/// Adds up named values, weighted by samples, in float64. A value type; not thread-safe. Tensors on
/// a GPU are added up there, so adding does not wait for it. All ranks that add anything must add
/// the same names, in the same order of first use; a rank may also add nothing at all.
class LOCKSTEP_API Metrics {
 public:
  Metrics() = default;
  /// Resets `metrics` and shares them with the caller. all_reduce() reduces them together with the
  /// sums.
  explicit Metrics(std::vector<MetricPtr> metrics);

  /// Adds a mean over `samples` samples, as a number or a tensor of one element. "loss" becomes
  /// Evaluation::loss, every other name one of its values. Throws ConfigError for an empty name, a
  /// name with a line feed, or a negative number of samples.
  void add(std::string_view name, double mean, std::int64_t samples,
           MetricUnit unit = MetricUnit::kNumber);
  void add(std::string_view name, const torch::Tensor& mean, std::int64_t samples,
           MetricUnit unit = MetricUnit::kNumber);
  /// Like add(), but takes a sum over the samples instead of their mean.
  void add_sum(std::string_view name, double sum, std::int64_t samples,
               MetricUnit unit = MetricUnit::kNumber);
  void add_sum(std::string_view name, const torch::Tensor& sum, std::int64_t samples,
               MetricUnit unit = MetricUnit::kNumber);
  /// For classifiers: adds the sum of the losses, and the number of correct answers ("accuracy")
  /// unless `correct` is undefined.
  void add(const torch::Tensor& loss_sum, const torch::Tensor& correct, std::int64_t samples);
  void add(double loss_sum, double correct, std::int64_t samples);

  /// Calls update() of all metrics given to the constructor.
  void update(const torch::Tensor& output, const torch::Tensor& target);

  /// Collective. Reduces the sums and the metrics' states over all ranks. `device` is one that the
  /// group can send from. Throws ConfigError on all ranks if two ranks have added different names,
  /// have added them in a different order, or have different metrics.
  void all_reduce(ProcessGroup& group, torch::Device device);

  /// The means over the samples so far, and the values and tables of the metrics.
  /// Evaluation::samples is the largest number of samples of any sum. Throws ConfigError if two
  /// values or tables have the same name.
  Evaluation mean() const;

 private:
  struct Sum {
    std::string name{};
    MetricUnit unit = MetricUnit::kNumber;
    double sum = 0;              // sum of values added as numbers
    torch::Tensor device_sum{};  // sum of values added on another device: float64, one element
    double samples = 0;
  };

  Sum& sum_named(std::string_view name, std::int64_t samples, MetricUnit unit);
  std::vector<double> totals() const;  // total of each sum; waits for the device
  void agree_on_names(ProcessGroup& group);
  void reduce_sums(ProcessGroup& group, torch::Device device);
  void reduce_metrics(ProcessGroup& group, torch::Device device);

  std::vector<Sum> sums_;
  std::vector<MetricPtr> metrics_;
};

/// Earlier name of Metrics, from when it had loss and accuracy only.
using MetricSums = Metrics;

}  // namespace lockstep
