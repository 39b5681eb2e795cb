// How much an epoch used the processors and GPUs of all ranks.
#pragma once

#include <optional>

#include <torch/types.h>

#include <lockstep/comm/group/process_group.h>
#include <lockstep/core/measuring/gpu_usage.h>
#include <lockstep/train/measuring/epoch_clock.h>
#include <lockstep/train/task/listener.h>

namespace lockstep::train {

/// Sets the processor and GPU values of `report` to the means over the ranks of `group`.
/// `report.seconds` must already be set. `processors` and `gpus` are this rank's values, which it
/// sends as tensors on `device`. The means for GPUs exclude ranks whose driver reports nothing.
/// Collective.
void set_usage(const EpochClock::Use& processors, const std::optional<GpuUsage>& gpus,
               ProcessGroup& group, torch::Device device, EpochReport& report);

}  // namespace lockstep::train
