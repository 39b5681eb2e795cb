// A data set over images that a program already holds in tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/core/export.h>
#include <lockstep/data/datasets/dataset.h>

namespace lockstep {

/// The images of a uint8 tensor [N, C, H, W], contiguous or in channels_last, with N int64 labels,
/// both on the CPU. Nothing is copied: the data set keeps both tensors' memory alive, and a later
/// write to them changes its contents.
///
/// Throws a ConfigError that states the actual value if a tensor has another type, shape, device or
/// layout, or a label is outside 0 to num_classes - 1.
LOCKSTEP_API ImageDataset image_dataset(const torch::Tensor& images, const torch::Tensor& labels,
                                        std::int64_t num_classes, std::string name = "tensors",
                                        std::vector<std::string> class_names = {});

}  // namespace lockstep
