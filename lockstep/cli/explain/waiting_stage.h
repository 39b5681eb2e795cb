// A stage that waits instead of computing, for pipelines with more workers than there are
// processors: waits take no time from each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace lockstep {

/// Sleeps for a length of time, to an absolute deadline. The kernel wakes a thread some
/// microseconds late, so the deadline comes earlier by the median delay that the constructor has
/// measured. Thread-safe.
class CalibratedWait {
 public:
  /// A length of 0 is no wait and needs no calibration; another one is slept several times here, on
  /// the calling thread.
  explicit CalibratedWait(std::chrono::nanoseconds length);

  void operator()();

  /// How many waits there were since the last forget(), and how long they were on average, in
  /// seconds; 0 without any.
  std::int64_t waits() const { return waits_; }
  double mean_seconds() const;
  void forget();

 private:
  std::chrono::nanoseconds length_;
  std::chrono::nanoseconds lateness_{0};
  std::atomic<std::int64_t> nanoseconds_ = 0;  // sum over all waits
  std::atomic<std::int64_t> waits_ = 0;
};

/// Passes its input on. A forward, the gradient of the input and that of the weight, a single
/// number, take one wait each, so that a backward takes two and can be split. The first stage takes
/// as long: its input needs no gradient, so both waits are in the second part of a split backward.
class WaitingStageImpl : public torch::nn::Module {
 public:
  explicit WaitingStageImpl(std::shared_ptr<CalibratedWait> wait);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  std::shared_ptr<CalibratedWait> wait_;
  torch::Tensor weight_;
};
TORCH_MODULE(WaitingStage);

}  // namespace lockstep
