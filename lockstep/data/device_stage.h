// What happens to a host's batches on the device, ahead of the trainer.
#pragma once

#include <functional>
#include <memory>

#include <torch/types.h>

#include <lockstep/data/loader_engine.h>

namespace lockstep {

/// Makes a device batch of `host`, on the current stream. `memory` is what the same buffer held
/// before, to be used again; nobody reads it any more.
using DeviceWork = std::function<Batch(const Batch& host, Batch& memory)>;

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

/// Memory of `sizes` and `strides` in `memory`, which is replaced where it does not fit; a batch with
/// fewer samples fits into that of one with more.
torch::Tensor reuse(torch::Tensor& memory, torch::IntArrayRef sizes, torch::IntArrayRef strides,
                    const torch::TensorOptions& options);

}  // namespace lockstep
