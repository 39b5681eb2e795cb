// Turns batches in host memory into batches on the device, ahead of the trainer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

#include <lockstep/data/loader/loader_engine.h>

namespace lockstep::data {

/// Turns the batch `host` into a device batch in `buffer`, on the current stream. The previous
/// content of the buffer is no longer in use; `memory` belongs to the buffer and can be reused.
using DeviceWork = std::function<void(const LoadedBatch& host, LoadedBatch& buffer,
                                      std::vector<torch::Tensor>& memory)>;

/// Runs `work` for each of `host`'s batches while the trainer works on the batch before it. The
/// work has its own thread (on options.cpus) and its own stream of options.device. A CPU has no
/// streams; there, only the thread is used.
std::unique_ptr<detail::LoaderEngine> work_on_device(std::unique_ptr<detail::LoaderEngine> host,
                                                     const LoaderOptions& options, DeviceWork work);

/// Copies `host`'s batches to options.device.
std::unique_ptr<detail::LoaderEngine> copy_to_device(std::unique_ptr<detail::LoaderEngine> host,
                                                     const LoaderOptions& options);

/// Returns `host` if options.device is a CPU, else copy_to_device().
std::unique_ptr<detail::LoaderEngine> on_device(std::unique_ptr<detail::LoaderEngine> host,
                                                const LoaderOptions& options);

}  // namespace lockstep::data
