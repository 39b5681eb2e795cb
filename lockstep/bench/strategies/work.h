// The models that `lockstep bench step --strategy all` trains, and their batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/bench/strategies/settings.h>
#include <lockstep/data/loader/loader.h>
#include <lockstep/train/task/task.h>

namespace lockstep::bench {

/// "mnist" (as in the recipe, with dropout and the fused kernel), "resnet18" (the stem for 32x32
/// images, 10 classes) or "resnet50" (torchvision's stem, 1000 classes); the ResNets use
/// channels-last. All can be cut into up to four stages. Weights come from LibTorch's generator.
/// `cuts` defines the cuts for the numbers of stages that it lists; resnet_cuts() defines the
/// others. Throws ConfigError for any other name.
std::unique_ptr<OutputTask> make_strategy_task(const std::string& model,
                                               const std::vector<StageCuts>& cuts);

/// The cuts of a ResNet that minimize the time of the slowest of `stages` stages for a micro-batch
/// of `samples` images, measured with this process's threads.
StageCuts balanced_cuts(const std::string& model, std::int64_t image_size, std::int64_t samples,
                        int stages);

/// Random images and labels of `size` samples, from LibTorch's generator, in the model's memory
/// format.
Batch make_strategy_batch(const std::string& model, std::int64_t image_size, std::int64_t size);

}  // namespace lockstep::bench
