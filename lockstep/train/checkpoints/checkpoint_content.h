// A checkpoint's tensors and text as the bytes of its files. Internal to the room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/formats/safetensors.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/checkpoint_store.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep {

/// What a file's metadata says that it is.
inline constexpr std::string_view kCheckpointFormat = "lockstep checkpoint 2";

/// `training` with the names that its tensors have in a file.
StateDict named_for_file(const StateDict& training);

/// CheckpointError, which begins with `what_fails`, when two tensors have one name: a file holds
/// one under a name.
void require_distinct_names(const StateDict& state, const std::string& what_fails);

/// Tensors on the CPU, row by row, and views of their bytes for a file. Those that lie so already
/// are not copied: they must stay as they are while the views are used. May be made in any thread,
/// and computes in that one alone.
class FileTensors {
 public:
  /// CheckpointError for a tensor of a type that safetensors does not have.
  explicit FileTensors(const StateDict& state);
  const TensorViews& views() const { return views_; }

 private:
  std::vector<torch::Tensor> kept_;
  TensorViews views_;
};

SafetensorsMetadata metadata_of(const CheckpointInfo& info);

/// The files of a checkpoint in a CheckpointStore.
class CheckpointContent {
 public:
  /// `model` is state_dict(), `training` as in save_checkpoint(). CheckpointError as there.
  CheckpointContent(const StateDict& model, const StateDict& training, const CheckpointInfo& info);
  /// Pieces of this object.
  std::vector<CheckpointFile> files() const;

 private:
  FileTensors model_tensors_;
  FileTensors training_tensors_;
  SafetensorsPieces model_;
  SafetensorsPieces training_;
};

}  // namespace lockstep
