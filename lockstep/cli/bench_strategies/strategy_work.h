// The models that `lockstep bench step --strategy all` trains, and their batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <lockstep/data/loader.h>
#include <lockstep/train/task.h>

namespace lockstep {

/// "mnist" (as the recipe trains it, with dropout and our kernel), "resnet18" (the stem for 32x32
/// images, 10 classes) or "resnet50" (torchvision's stem, 1000 classes), the ResNets in
/// channels-last. All can be cut into up to four stages. Weights come from LibTorch's generator.
/// ConfigError for another name.
std::unique_ptr<OutputTask> make_strategy_task(const std::string& model);

/// Random images and labels of `size` samples, from LibTorch's generator, in the memory format of
/// the model.
Batch make_strategy_batch(const std::string& model, std::int64_t image_size, std::int64_t size);

}  // namespace lockstep
