// The usage of this process's GPUs and the processors nearest to them, as reported by NVML
// (libnvidia-ml.so.1), the driver library that nvidia-smi also reads. It is loaded on first use and
// needs no CUDA context, so a program may query it before it forks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/core/export.h>

namespace lockstep {

/// From nvmlDeviceGetUtilizationRates, nvmlDeviceGetMemoryInfo and nvmlDeviceGetPowerUsage
/// (https://docs.nvidia.com/deploy/nvml-api). NVML measures the two utilisations over its last
/// sample period, a sixth of a second to a second.
struct LOCKSTEP_API GpuUsage {
  double utilisation = 0;         ///< share of the time in which a kernel ran, from 0 to 1
  double memory_utilisation = 0;  ///< share of the time in which its memory was read or written
  std::int64_t memory_bytes = 0;  ///< in use, by all programs
  double power_watts = 0;         ///< 0 if the GPU does not report it
};

/// The number of GPUs that are visible to CUDA in this process: all, or those that
/// CUDA_VISIBLE_DEVICES lists. 0 if there is no driver.
LOCKSTEP_API int count_visible_gpus();

/// The usage of CUDA's device `index`. Empty if the driver's library is missing, does not know the
/// GPU (a MIG instance, for example), or does not report usage. Assumes that CUDA orders devices by
/// PCI bus (CUDA_DEVICE_ORDER), which holds if all GPUs are of one kind.
LOCKSTEP_API std::optional<GpuUsage> gpu_usage(int index);

/// The processors that are nearest to CUDA's device `index`, in ascending order: those of its NUMA
/// node (nvmlDeviceGetCpuAffinity). Empty if they are not known. Assumes the order of gpu_usage().
LOCKSTEP_API std::vector<int> cpus_near_gpu(int index);

}  // namespace lockstep
