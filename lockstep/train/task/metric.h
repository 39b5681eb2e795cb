// A metric with a state of its own, such as a confusion matrix: the interface, for a user's own
// metrics, too. standard_metrics.h has those that come with Lockstep. A mean over samples needs no
// class: see Metrics::add(). A function of sums over all
// samples needs none either: see sum_metric.h.
//
//   class MaxError final : public lockstep::Metric { ... };   // docs/training_loop.md
//   task.add_metric(std::make_shared<lockstep::ConfusionMatrix>(10));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include <lockstep/train/task/listener.h>

namespace lockstep {

/// The Trainer calls reset(), then update() for each batch of this rank, then adds up state() over
/// the ranks, and reads values() and tables() on each rank. Ranks without a batch do the same
/// without update(). Not thread-safe.
class Metric {
 public:
  virtual ~Metric() = default;
  /// Names the metric in messages; the same on all ranks.
  virtual const std::string& name() const = 0;

  /// Makes the state that of no samples.
  virtual void reset() = 0;
  /// Adds a batch to the state. Called without gradients. To keep a GPU busy, it must not read a
  /// value from there. ConfigError for tensors that the metric cannot take.
  virtual void update(const torch::Tensor& output, const torch::Tensor& target) = 0;

  /// The state, sharing its memory: tensors whose sums over the ranks are the state of all samples.
  /// From reset() on they have the same number, shapes and types on all ranks; the devices may
  /// differ. With float64 and int64 nothing is lost in the sums.
  virtual std::vector<torch::Tensor> state() const = 0;

  /// What the state amounts to. A value without samples is not a number.
  virtual std::vector<MetricValue> values() const = 0;
  virtual std::vector<MetricTable> tables() const { return {}; }
};

using MetricPtr = std::shared_ptr<Metric>;

}  // namespace lockstep
