#include <lockstep/train/measuring/gpu_sampler.h>

#include <utility>

#include <lockstep/core/error.h>
#include <lockstep/core/log.h>

namespace lockstep::train {

GpuSampler::GpuSampler(std::vector<int> devices, Milliseconds interval)
    : devices_(std::move(devices)), interval_(interval) {
  if (devices_.empty() || !gpu_usage(devices_.front())) return;
  try {
    thread_.start([this] { sample_until_stopped(); });
  } catch (const Error& error) {
    log_warning("the usage of GPUs is not measured: ", first_line(error));
  }
}

GpuSampler::~GpuSampler() {
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_all();
}

void GpuSampler::reset() {
  const std::scoped_lock lock(mutex_);
  sum_ = {};
  samples_ = 0;
}

std::optional<GpuUsage> GpuSampler::mean() const {
  const std::scoped_lock lock(mutex_);
  if (samples_ == 0) return std::nullopt;
  const auto count = static_cast<double>(samples_);
  return GpuUsage{.utilisation = sum_.utilisation / count,
                  .memory_utilisation = sum_.memory_utilisation / count,
                  .memory_bytes = sum_.memory_bytes / samples_,
                  .power_watts = sum_.power_watts / count};
}

void GpuSampler::set_paused(bool paused) {
  const std::scoped_lock lock(mutex_);
  paused_ = paused;
}

void GpuSampler::sample_until_stopped() {
  std::unique_lock lock(mutex_);
  do {
    lock.unlock();
    sample();
    lock.lock();
  } while (!stopping_.wait_for(lock, interval_, [this] { return stopped_; }));
}

void GpuSampler::sample() {
  for (const int device : devices_) {
    const std::optional<GpuUsage> usage = gpu_usage(device);
    if (!usage) continue;
    const std::scoped_lock lock(mutex_);
    if (paused_) return;
    sum_.utilisation += usage->utilisation;
    sum_.memory_utilisation += usage->memory_utilisation;
    sum_.memory_bytes += usage->memory_bytes;
    sum_.power_watts += usage->power_watts;
    ++samples_;
  }
}

}  // namespace lockstep::train
