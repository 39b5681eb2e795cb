// The models that `lockstep bench step --strategy all` trains, and their batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/bench/strategies/settings.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/train/task/task.h>

namespace lockstep {

/// "mnist" (as the recipe trains it, with dropout and our kernel), "resnet18" (the stem for 32x32
/// images, 10 classes) or "resnet50" (torchvision's stem, 1000 classes), the ResNets in
/// channels-last. All can be cut into up to four stages. Weights come from LibTorch's generator.
/// `cuts` says where, for the numbers of stages that it has; otherwise resnet_cuts() does.
/// ConfigError for another name.
std::unique_ptr<OutputTask> make_strategy_task(const std::string& model,
                                               const std::vector<StageCuts>& cuts);

/// Where to cut a ResNet so that the slowest of `stages` stages takes as little time as it can with
/// a micro-batch of `samples` images, measured with this process's threads.
StageCuts balanced_cuts(const std::string& model, std::int64_t image_size, std::int64_t samples,
                        int stages);

/// Random images and labels of `size` samples, from LibTorch's generator, in the memory format of
/// the model.
Batch make_strategy_batch(const std::string& model, std::int64_t image_size, std::int64_t size);

}  // namespace lockstep
