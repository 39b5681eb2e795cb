// What an evaluation adds up: sums over samples, from which means over all ranks follow exactly,
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
#include <lockstep/train/task/listener.h>
#include <lockstep/train/task/metric.h>

namespace lockstep {

/// Adds up named values, weighted by samples, in float64. A value; not thread-safe. Tensors on a
/// GPU are added up there, so that adding does not wait for it. All ranks that add something add
/// the same names, first in the same order; a rank may also add nothing at all.
class Metrics {
 public:
  Metrics() = default;
  /// Resets `metrics`, shares them, and reduces them with its own sums.
  explicit Metrics(std::vector<MetricPtr> metrics);

  /// Adds a mean over `samples` samples, a number or a tensor of one element. "loss" becomes
  /// Evaluation::loss, every other name one of its values. ConfigError for an empty name, one with
  /// a line feed, and less than no samples.
  void add(std::string_view name, double mean, std::int64_t samples,
           MetricUnit unit = MetricUnit::kNumber);
  void add(std::string_view name, const torch::Tensor& mean, std::int64_t samples,
           MetricUnit unit = MetricUnit::kNumber);
  /// The same for a sum over the samples.
  void add_sum(std::string_view name, double sum, std::int64_t samples,
               MetricUnit unit = MetricUnit::kNumber);
  void add_sum(std::string_view name, const torch::Tensor& sum, std::int64_t samples,
               MetricUnit unit = MetricUnit::kNumber);
  /// What a classifier has: the sum of the losses, and the number of correct answers ("accuracy"),
  /// unless that is undefined.
  void add(const torch::Tensor& loss_sum, const torch::Tensor& correct, std::int64_t samples);
  void add(double loss_sum, double correct, std::int64_t samples);

  /// Calls update() of all metrics given to the constructor.
  void update(const torch::Tensor& output, const torch::Tensor& target);

  /// Collective. Makes the sums and the states of the metrics those of all ranks. `device` is one
  /// that the group can send from. ConfigError on all ranks where two have added other names, or
  /// the same ones in another order, or have other metrics.
  void all_reduce(ProcessGroup& group, torch::Device device);

  /// The means over the samples so far, and what the metrics make of theirs. Evaluation::samples is
  /// the largest number of samples of a sum. ConfigError where two values have one name.
  Evaluation mean() const;

 private:
  struct Sum {
    std::string name{};
    MetricUnit unit = MetricUnit::kNumber;
    double sum = 0;              // of what was added as a number
    torch::Tensor device_sum{};  // of what was added on another device: float64, one element
    double samples = 0;
  };

  Sum& sum_named(std::string_view name, std::int64_t samples, MetricUnit unit);
  std::vector<double> totals() const;  // of each sum; waits for the device
  void agree_on_names(ProcessGroup& group);
  void reduce_sums(ProcessGroup& group, torch::Device device);
  void reduce_metrics(ProcessGroup& group, torch::Device device);

  std::vector<Sum> sums_;
  std::vector<MetricPtr> metrics_;
};

/// The name that Metrics had when it knew loss and accuracy alone.
using MetricSums = Metrics;

}  // namespace lockstep
