// The criterion of a pipeline's step: each micro-batch's loss for its backward, and their mean for
// reports.
#pragma once

#include <cstdint>

#include <c10/core/GradMode.h>
#include <torch/types.h>

#include <lockstep/train/optimization/precision.h>
#include <lockstep/train/strategies/strategy.h>
#include <lockstep/train/strategies/weighted_loss.h>
#include <lockstep/train/task/task.h>

namespace lockstep::train {

/// Called by the worker of the last stage, one micro-batch after another. With recomputation it is
/// called twice for each; mean() then counts the call that records a graph. Call mean() after the
/// step has ended.
class StageCriterion {
 public:
  /// The criterion of one batch of `samples` samples. Refers to its arguments, which must outlive
  /// it.
  StageCriterion(const detail::OutputTaskBase& task, const StepSettings& settings,
                 const StepPart& part, std::int64_t samples)
      : task_(task), settings_(settings), part_(part), samples_(static_cast<double>(samples)) {}

  torch::Tensor operator()(const torch::Tensor& output, const torch::Tensor& labels) {
    torch::Tensor loss;
    {
      const AutocastScope autocast(settings_.precision, output.device().type());
      loss = task_.loss(output, labels);
    }
    if (c10::GradMode::is_enabled()) {
      const torch::Tensor share = loss.detach() * (static_cast<double>(labels.size(0)) / samples_);
      mean_ = mean_.defined() ? mean_ + share : share;
    }
    return weighted_loss(loss, part_, settings_.scaler);
  }

  /// The mean loss over all samples so far, neither weighted nor scaled.
  const torch::Tensor& mean() const { return mean_; }

 private:
  const detail::OutputTaskBase& task_;
  const StepSettings& settings_;
  const StepPart& part_;
  const double samples_;
  torch::Tensor mean_;
};

}  // namespace lockstep::train
