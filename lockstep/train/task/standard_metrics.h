// Metrics for classifiers and for models that generate images.
//
//   lockstep::ClassificationTask task(net, lockstep::ClassificationLoss::kCrossEntropy);
//   task.add_metric(std::make_shared<lockstep::TopKAccuracy>(5));
//   auto confusion = std::make_shared<lockstep::ConfusionMatrix>(10, class_names);
//   task.add_metric(confusion);
//   trainer.fit(task, loader, test_loader);
//   std::cout << confusion->matrix();   // of the last evaluation, on every rank
//
// States stay on the device of the outputs, and update() does not wait for it. All classes follow
// the contract of metric.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/train/task/metric.h>

namespace lockstep {

/// The share of samples whose class is among the `k` highest outputs. Outputs are [N, classes];
/// targets are whole numbers [N].
class LOCKSTEP_API TopKAccuracy final : public Metric {
 public:
  /// Throws ConfigError unless `k` is at least 1. An empty name becomes "top5_accuracy" for k = 5.
  explicit TopKAccuracy(std::int64_t k, std::string name = "");
  const std::string& name() const override { return name_; }
  void reset() override;
  void update(const torch::Tensor& output, const torch::Tensor& target) override;
  std::vector<torch::Tensor> state() const override { return {correct_, samples_}; }
  std::vector<MetricValue> values() const override;

 private:
  std::int64_t k_;
  std::string name_;
  torch::Tensor correct_;  // int64
  torch::Tensor samples_;  // int64, on the CPU
};

/// Counts samples by true class and predicted class, the one with the highest output. Outputs are
/// [N, classes]; targets are whole numbers [N] below `num_classes`. Reports the table `name`, with
/// true classes in rows and predicted classes in columns, and the value `name`_accuracy.
class LOCKSTEP_API ConfusionMatrix final : public Metric {
 public:
  /// Throws ConfigError unless `num_classes` is at least 1 and `class_names` is empty or has one
  /// name per class.
  explicit ConfusionMatrix(std::int64_t num_classes, std::vector<std::string> class_names = {},
                           std::string name = "confusion");
  const std::string& name() const override { return name_; }
  void reset() override;
  void update(const torch::Tensor& output, const torch::Tensor& target) override;
  std::vector<torch::Tensor> state() const override { return {counts_}; }
  std::vector<MetricValue> values() const override;
  std::vector<MetricTable> tables() const override;

  /// The counts as an int64 tensor [num_classes, num_classes] on the CPU.
  torch::Tensor matrix() const;

 private:
  std::int64_t num_classes_;
  std::vector<std::string> class_names_;
  std::string name_;
  torch::Tensor counts_;  // int64 [num_classes * num_classes]
};

/// The mean of the squared differences over all elements. Outputs and targets are real numbers of
/// equal shapes. Differences are float32 if that holds all values of both types, else float64.
class LOCKSTEP_API MeanSquaredError : public Metric {
 public:
  explicit MeanSquaredError(std::string name = "mse") : name_(std::move(name)) {
    MeanSquaredError::reset();
  }
  const std::string& name() const override { return name_; }
  void reset() override;
  void update(const torch::Tensor& output, const torch::Tensor& target) override;
  std::vector<torch::Tensor> state() const override { return {squares_, elements_}; }
  std::vector<MetricValue> values() const override;

 protected:
  double mean() const;

 private:
  std::string name_;
  torch::Tensor squares_;   // float64
  torch::Tensor elements_;  // int64, on the CPU
};

/// Peak signal-to-noise ratio in decibels, 10 log10(range^2 / mse), from the mean squared error
/// over all images together; infinite if the error is zero.
class LOCKSTEP_API Psnr final : public MeanSquaredError {
 public:
  /// `data_range` is the largest possible difference between two values. Throws ConfigError unless
  /// it is positive.
  explicit Psnr(double data_range = 1.0, std::string name = "psnr");
  std::vector<MetricValue> values() const override;

 private:
  double data_range_;
};

}  // namespace lockstep
