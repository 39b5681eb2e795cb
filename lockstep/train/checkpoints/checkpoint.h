// What a run needs to resume where it stopped, as a safetensors file. The Trainer's checkpoints are
// folders with two such files; load_checkpoint() reads both (checkpoint_folder.h).
//
// Parameters and buffers are stored under the names that Python's state_dict() gives them, and the
// optimizer's state under "optimizer.STATE.NAME": "optimizer.exp_avg.conv1.weight". In Python:
//
//   tensors = safetensors.torch.load_file("checkpoint.safetensors")
//   net.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("optimizer.")})
//
// Each tensor and the header have a checksum (formats/safetensors.h), so that a file damaged on
// disk or in transfer is refused rather than trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include <torch/nn/module.h>

#include <lockstep/core/export.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {

/// The position and the settings of a run, kept in the file's metadata.
struct LOCKSTEP_API CheckpointInfo {
  /// Name of what is trained, chosen by the caller. load_checkpoint() refuses a file with a
  /// different one.
  std::string recipe{};
  std::int64_t epoch = 1;  ///< the epoch to resume in, from 1
  std::int64_t step = 0;   ///< optimizer steps already done in that epoch
  /// Settings that another run must share to repeat this one, as text by name: "seed", "lr", ...
  std::map<std::string, std::string> settings{};
};

/// Prefix of the recipe's options (RunInfo::recipe_options) among the settings.
inline constexpr std::string_view kRecipeOption = "recipe.";

/// Prefix of notes about the use of the model (RunInfo::notes) among the settings.
inline constexpr std::string_view kCheckpointNote = "note.";

/// Prefix of the loss scaler's tensors in a training state.
inline constexpr std::string_view kGradScalerState = "grad_scaler.";

/// Prefix of a training state's tensors in a file.
inline constexpr std::string_view kTrainingPrefix = "optimizer.";

/// Writes the state of `module` and `training` atomically: readers see the old file or the new one.
/// `training` holds Optimizer::state() and, if they are used, ModelEma::state() and
/// GradScaler::state(), the latter with its names prefixed with kGradScalerState. Call it on rank 0
/// only. Throws CheckpointError if the file cannot be written or, before anything is written, if
/// two tensors have the same name. The states of two optimizers fit into one file if the names of
/// their parameters differ, as in a module that holds both nets: "generator.conv.weight" and
/// "critic.conv.weight" (docs/training_loop.md in the sources).
LOCKSTEP_API void save_checkpoint(const std::filesystem::path& path,
                                  const torch::nn::Module& module, const StateDict& training,
                                  const CheckpointInfo& info);

/// Whether load_checkpoint() compares the files of a folder with their manifest, which requires
/// reading them completely.
enum class FolderCheck {
  kVerify,
  kVerified,  ///< the caller has compared them: find_checkpoint() returned the folder
};

/// Loads a checkpoint into `module` and into the tensors of `training`, and returns its metadata.
/// `path` is a file written by save_checkpoint(), a Trainer's checkpoint
/// ("run/checkpoints/step-00000060"), or a folder of such checkpoints, whose newest complete one is
/// loaded (find_checkpoint()). Throws CheckpointError and changes nothing if the file is missing or
/// damaged, has a recipe other than `recipe` (unless that is empty), or comes from an optimizer
/// with a different state; if a tensor is missing, unexpected, or of another shape or type; or if
/// two of this run's tensors have the same name. If the file has no loss scaler or average of the
/// weights (ModelEma::state()), the run's own starts afresh; if the run has none, the file's is
/// ignored.
///
/// A file without checksums, from an earlier version or another program, is loaded with a warning
/// in the log. Parameters saved with non-finite values are loaded with a warning, too: a diverged
/// run resumes as it was, and its user decides whether to continue. The copied tensors are always
/// compared with the checksums in their file, whatever `check` says.
LOCKSTEP_API CheckpointInfo load_checkpoint(const std::filesystem::path& path,
                                            torch::nn::Module& module, const StateDict& training,
                                            const std::string& recipe,
                                            FolderCheck check = FolderCheck::kVerify);

}  // namespace lockstep
