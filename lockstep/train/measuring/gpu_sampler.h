// Utilization of a process's GPUs while it trains.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <lockstep/core/clock.h>
#include <lockstep/core/measuring/gpu_usage.h>
#include <lockstep/train/measuring/background_job.h>

namespace lockstep::train {

/// Polls gpu_usage() of some devices on a background thread. Thread-safe.
class GpuSampler {
 public:
  /// `devices` are CUDA indices. If the driver reports nothing for the first one, no thread is
  /// started.
  explicit GpuSampler(std::vector<int> devices, Milliseconds interval = Milliseconds(100));
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  /// Pauses polling while it lives. At most one may exist at a time.
  class Pause {
   public:
    explicit Pause(GpuSampler* sampler) : sampler_(sampler) {  ///< may be null
      if (sampler_ != nullptr) sampler_->set_paused(true);
    }
    ~Pause() {
      if (sampler_ != nullptr) sampler_->set_paused(false);
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    GpuSampler* const sampler_;
  };

  /// Discards all samples.
  void reset();
  /// The mean over the samples since reset() and over the devices; empty if there are no samples.
  std::optional<GpuUsage> mean() const;

 private:
  void set_paused(bool paused);
  void sample_until_stopped();
  void sample();

  const std::vector<int> devices_;
  const Milliseconds interval_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable stopping_;
  bool stopped_ = false;
  bool paused_ = false;
  GpuUsage sum_{};
  std::int64_t samples_ = 0;
  BackgroundJob thread_;  // uses all of the members above
};

}  // namespace lockstep::train
