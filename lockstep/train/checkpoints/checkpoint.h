// What a run needs to go on where it stopped, as a safetensors file. The Trainer's checkpoints are
// folders with two such files, of which load_checkpoint() reads both (checkpoint_folder.h).
//
// Parameters and buffers stand in the file under the names that Python's state_dict() gives them,
// what the optimizer remembers under "optimizer.STATE.NAME": "optimizer.exp_avg.conv1.weight". In
// Python:
//
//   tensors = safetensors.torch.load_file("checkpoint.safetensors")
//   net.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("optimizer.")})
//
// Each tensor and the header have a checksum (formats/safetensors.h), so that a file that was
// damaged on a disk or on its way is refused instead of trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include <torch/nn/module.h>

#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {

/// Where a run stands, and what it was trained with. Kept in the file's metadata.
struct CheckpointInfo {
  std::string recipe{};
  std::int64_t epoch = 1;  ///< the epoch to go on in, from 1
  std::int64_t step = 0;   ///< optimizer steps already done in that epoch
  /// What a run must agree on to repeat this one, as text by name: "seed", "lr", ...
  std::map<std::string, std::string> settings{};
};

/// Begins the names of the recipe's options (RunInfo::recipe_options) among the settings.
inline constexpr std::string_view kRecipeOption = "recipe.";

/// Begins the names of the loss scaler's tensors in a training state.
inline constexpr std::string_view kGradScalerState = "grad_scaler.";

/// Begins the names of a training state's tensors in a file.
inline constexpr std::string_view kTrainingPrefix = "optimizer.";

/// Writes the state of `module` and `training`, which is what Optimizer::state() gives,
/// GradScaler::state() with kGradScalerState before its names, and ModelEma::state(); readers see
/// the old file or the new one. For rank 0. CheckpointError when the file cannot be written, and
/// before anything is written when two tensors would have one name in it. The states of two
/// optimizers go into one file where the names of their parameters differ, as they do in a module
/// that holds both nets: "generator.conv.weight" and "critic.conv.weight" (docs/training_loop.md).
void save_checkpoint(const std::filesystem::path& path, const torch::nn::Module& module,
                     const StateDict& training, const CheckpointInfo& info);

/// Whether load_checkpoint() compares the files of a folder with their manifest, which reads them
/// whole.
enum class FolderCheck {
  kVerify,
  kVerified,  ///< the caller has done so: find_checkpoint() gave the folder
};

/// Copies a checkpoint into `module` and the tensors of `training` and returns its metadata. `path`
/// is a file of save_checkpoint(), a checkpoint of a Trainer ("run/checkpoints/step-00000060"), or
/// a folder of these, of which the newest whole one is taken (find_checkpoint()). CheckpointError,
/// and nothing changed, when the file is missing, damaged, of another recipe than `recipe` (unless
/// that is empty), of an optimizer that remembers something else, or when a tensor is missing,
/// unexpected, or of another shape or type, or when two of this run's tensors have one name. A loss
/// scaler or an average of the weights (ModelEma::state()) begins anew where the file has none, and
/// the file's is left where the run has none.
///
/// A file without checksums, of an earlier version or of another program, is loaded with a warning
/// in the log. So are parameters that are not finite and were saved that way: a run that has
/// diverged goes on as it was, for its user to judge. The tensors that are copied are compared with
/// the checksums in their file, whatever `check` says.
CheckpointInfo load_checkpoint(const std::filesystem::path& path, torch::nn::Module& module,
                               const StateDict& training, const std::string& recipe,
                               FolderCheck check = FolderCheck::kVerify);

}  // namespace lockstep
