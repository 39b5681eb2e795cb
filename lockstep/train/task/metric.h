// The interface of a metric with a state of its own, such as a confusion matrix; users can
// implement it. standard_metrics.h has Lockstep's metrics. A mean over samples needs no class: see
// Metrics::add(). Neither does a function of sums over all samples: see sum_metric.h.
//
//   class MaxError final : public lockstep::Metric { ... };   // docs/training_loop.md
//   task.add_metric(std::make_shared<lockstep::ConfusionMatrix>(10));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/core/export.h>
#include <lockstep/train/task/listener.h>

namespace lockstep {

/// The Trainer calls reset(), then update() for each batch of this rank, adds up state() over the
/// ranks, and reads values() and tables() on each rank. On ranks without a batch it skips update().
/// Not thread-safe.
class LOCKSTEP_API Metric {
 public:
  virtual ~Metric() = default;
  /// The metric's name in messages; equal on all ranks.
  virtual const std::string& name() const = 0;

  /// Resets the state to that before the first sample.
  virtual void reset() = 0;
  /// Adds a batch to the state. Called without gradients. It must not read a value from a GPU,
  /// because that waits for the GPU and leaves it without work. Throws ConfigError for tensors that
  /// the metric does not support.
  virtual void update(const torch::Tensor& output, const torch::Tensor& target) = 0;

  /// The state as tensors that share its memory and whose sums over the ranks are the state of all
  /// samples. From reset() on, their number, shapes and types must be equal on all ranks; devices
  /// may differ. Sums in float64 and int64 lose no precision.
  virtual std::vector<torch::Tensor> state() const = 0;

  /// The metric's values for the current state. A value without samples is NaN.
  virtual std::vector<MetricValue> values() const = 0;
  virtual std::vector<MetricTable> tables() const { return {}; }
};

using MetricPtr = std::shared_ptr<Metric>;

}  // namespace lockstep
