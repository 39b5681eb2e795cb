// What the GPUs of this process do, from the driver's own library, NVML (libnvidia-ml.so.1), which
// nvidia-smi reads, too. It is loaded on first use, and needs no CUDA context, so that a
// program may ask before it forks.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// https://docs.nvidia.com/deploy/nvml-api: nvmlDeviceGetUtilizationRates, nvmlDeviceGetMemoryInfo,
/// nvmlDeviceGetPowerUsage. NVML measures the first two over its last sample period, a sixth of a
/// second to a second.
struct GpuUsage {
  double utilisation = 0;         ///< share of the time in which a kernel ran, from 0 to 1
  double memory_utilisation = 0;  ///< share of the time in which its memory was read or written
  std::int64_t memory_bytes = 0;  ///< in use, by all programs
  double power_watts = 0;
};

/// The number of GPUs that CUDA shows this process: all, or those that CUDA_VISIBLE_DEVICES names.
/// 0 where there is no driver.
int count_visible_gpus();

/// The usage of CUDA's device `index`. Nothing where the driver's library is missing, does not know
/// that GPU (an instance of MIG, for one), or does not tell. CUDA's order is taken to be that of
/// the PCI bus (CUDA_DEVICE_ORDER), as it is where all GPUs are of one kind.
std::optional<GpuUsage> gpu_usage(int index);

}  // namespace lockstep
