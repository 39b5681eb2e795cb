// A stage that waits instead of computing, for pipelines with more workers than processors: waits
// do not compete for processors.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace lockstep::bench {

/// Sleeps for a fixed duration, until an absolute deadline. The kernel wakes threads some
/// microseconds late, so the deadline is set earlier by the median delay, which the constructor
/// measures. Thread-safe.
class CalibratedWait {
 public:
  /// With a `length` of 0 there is no wait and no calibration; otherwise the constructor calibrates
  /// by sleeping that long, but at most 2 ms, several times on the calling thread.
  explicit CalibratedWait(std::chrono::nanoseconds length);

  void operator()();

  /// The number of waits since the last forget(), and their mean duration in seconds; 0 if there
  /// were none.
  std::int64_t waits() const { return waits_; }
  double mean_seconds() const;
  void forget();

 private:
  std::chrono::nanoseconds length_;
  std::chrono::nanoseconds lateness_{0};
  std::atomic<std::int64_t> nanoseconds_ = 0;  // sum over all waits
  std::atomic<std::int64_t> waits_ = 0;
};

/// A stage that returns its input unchanged. The forward, the gradient of the input, and the
/// gradient of the weight (a single number) take one wait each, so a backward takes two and can be
/// split. The first stage takes equally long: its input needs no gradient, so the second half of a
/// split backward has both waits.
class WaitingStageImpl : public torch::nn::Module {
 public:
  explicit WaitingStageImpl(std::shared_ptr<CalibratedWait> wait);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  std::shared_ptr<CalibratedWait> wait_;
  torch::Tensor weight_;
};
TORCH_MODULE(WaitingStage);

}  // namespace lockstep::bench
