// Loads a run's checkpoint, whose optimizers may have state of unknown form. Internal to
// lockstep/train.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <torch/nn/module.h>

#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep::train {

struct RunState {
  StateDict training{};  ///< as for load_checkpoint()
  /// Whether the file's tensor of this name, without kTrainingPrefix, has any form: it is returned
  /// in `taken`, under the same name, instead of being copied to one of `training`.
  std::function<bool(const std::string& name)> takes{};
  StateDict taken{};
};

/// Like load_checkpoint() with FolderCheck::kVerified. Calls `accept`, which may throw, before
/// anything is changed.
CheckpointInfo load_run(const std::filesystem::path& path, torch::nn::Module& module,
                        RunState& state, const std::string& recipe,
                        const std::function<void(const CheckpointInfo&)>& accept);

}  // namespace lockstep::train
