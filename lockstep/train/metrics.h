// Sums over samples, from which means over all ranks follow exactly.
#pragma once

#include <array>
#include <cstdint>

#include <torch/types.h>

#include <lockstep/comm/process_group.h>
#include <lockstep/train/listener.h>

namespace lockstep {

/// Adds up loss, correct answers and samples. A value; not thread-safe. Tensors on a GPU are added
/// up there, so that adding does not wait for it.
class MetricSums {
 public:
  /// `loss_sum` (and `correct`, where it is defined) are scalars over `samples` samples.
  void add(const torch::Tensor& loss_sum, const torch::Tensor& correct, std::int64_t samples);
  void add(double loss_sum, double correct, std::int64_t samples);

  /// Collective. The sums of all ranks, in one reduction.
  void all_reduce(ProcessGroup& group, torch::Device device);

  /// Means over the samples so far; zeros without samples.
  Evaluation mean() const;

 private:
  std::array<double, 3> values() const;

  std::array<double, 3> sums_{};  // loss, correct, samples
  torch::Tensor device_sums_;     // float64 [2]: loss, correct
};

}  // namespace lockstep
