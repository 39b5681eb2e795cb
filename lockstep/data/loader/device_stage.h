// The work on a host's batches on the device, ahead of the trainer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

#include <lockstep/data/loader/loader_engine.h>

namespace lockstep::data {

/// Makes a device batch of `host` in `buffer`, on the current stream. The previous content of the
/// buffer is no longer in use; `memory` belongs to the buffer and can be reused.
using DeviceWork = std::function<void(const LoadedBatch& host, LoadedBatch& buffer,
                                      std::vector<torch::Tensor>& memory)>;

/// Runs `work` for each of `host`'s batches while the trainer works on the batch before, on a
/// thread of its own (on options.cpus) and a stream of its own of options.device. A CPU has no
/// streams, so there only the thread is used.
std::unique_ptr<detail::LoaderEngine> work_on_device(std::unique_ptr<detail::LoaderEngine> host,
                                                     const LoaderOptions& options, DeviceWork work);

/// Copies `host`'s batches to options.device.
std::unique_ptr<detail::LoaderEngine> copy_to_device(std::unique_ptr<detail::LoaderEngine> host,
                                                     const LoaderOptions& options);

/// Returns `host` if options.device is a CPU, else copy_to_device().
std::unique_ptr<detail::LoaderEngine> on_device(std::unique_ptr<detail::LoaderEngine> host,
                                                const LoaderOptions& options);

}  // namespace lockstep::data
