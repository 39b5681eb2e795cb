// What happens to a host's batches on the device, ahead of the trainer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

#include <lockstep/data/loader/loader_engine.h>

namespace lockstep {

/// Makes a device batch of `host` in `buffer`, on the current stream. Nobody reads any more what
/// the buffer held before; `memory` stays with it, to be used again.
using DeviceWork = std::function<void(const LoadedBatch& host, LoadedBatch& buffer,
                                      std::vector<torch::Tensor>& memory)>;

/// Runs `work` for each of `host`'s batches on a thread (of options.cpus) and a stream of
/// options.device of its own, while the trainer
/// works on the batch before. On a CPU, where there are no streams, only the thread is.
std::unique_ptr<LoaderEngine> work_on_device(std::unique_ptr<LoaderEngine> host,
                                             const LoaderOptions& options, DeviceWork work);

/// `host`'s batches, copied.
std::unique_ptr<LoaderEngine> copy_to_device(std::unique_ptr<LoaderEngine> host,
                                             const LoaderOptions& options);

/// `host`, or where options.device is no CPU its batches, copied.
std::unique_ptr<LoaderEngine> on_device(std::unique_ptr<LoaderEngine> host,
                                        const LoaderOptions& options);

}  // namespace lockstep
