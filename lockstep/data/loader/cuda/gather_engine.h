// The cuda engine without its kernel: keeps the data set on the device, and makes the maps (see
// gather.h) of each batch.
#pragma once

#include <functional>

#include <lockstep/data/augment/cuda/gather.h>
#include <lockstep/data/loader/loader_engine.h>

namespace lockstep::data {

/// Executes one launch, on the device's current stream.
using LaunchGather = std::function<void(const GatherLaunch&)>;

/// Makes an engine on options.device. Copies the data set there once, as bytes. Throws a
/// ConfigError for a list that GatherPlan rejects, a data set of files or of images of different
/// sizes, a data set that does not fit into the device's memory, and OnCorruptImage::kSkip, which
/// has no meaning for pixels in memory.
std::unique_ptr<detail::LoaderEngine> make_gather_engine(const ImageDataset& dataset,
                                                         const Augmentation& augmentation,
                                                         const LoaderOptions& options,
                                                         LaunchGather launch);

/// Does the kernel's work on the CPU, number by number.
void gather_on_cpu(const GatherLaunch& launch);

}  // namespace lockstep::data
