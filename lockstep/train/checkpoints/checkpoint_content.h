// A checkpoint's tensors and text as the bytes of its files. Internal to lockstep/train.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/formats/safetensors.h>
#include <lockstep/train/checkpoints/checkpoint.h>
#include <lockstep/train/checkpoints/checkpoint_store.h>
#include <lockstep/train/checkpoints/state_dict.h>

namespace lockstep::train {

/// Value of the "format" entry in a file's metadata.
inline constexpr std::string_view kCheckpointFormat = "lockstep checkpoint 2";

/// `training` with the names that its tensors have in a file.
StateDict named_for_file(const StateDict& training);

/// Throws CheckpointError, whose text begins with `what_fails`, if two tensors have the same name,
/// because names must be unique in a file.
void require_distinct_names(const StateDict& state, const std::string& what_fails);

/// Throws CheckpointError, which names the tensor, unless all are dense tensors of types that
/// safetensors has, with names in UTF-8.
void require_storable(const StateDict& state);

/// Whether no value is NaN and, unless `may_be_infinite`, none is infinite. A mask that is not
/// trained may hold infinities.
bool values_are_finite(const torch::Tensor& tensor, bool may_be_infinite);

/// Contiguous tensors on the CPU, and views of their bytes for a file. A tensor that is already
/// contiguous on the CPU is not copied and must not change while the views are used. May be
/// constructed in any thread, and computes in that thread only.
class FileTensors {
 public:
  /// Throws CheckpointError like require_storable().
  explicit FileTensors(const StateDict& state);
  const TensorViews& views() const { return views_; }
  /// Whether no value is NaN, and none infinite except in tensors named in `may_be_infinite`, such
  /// as an attention mask.
  bool all_finite(const std::set<std::string>& may_be_infinite = {}) const;

 private:
  StateDict kept_;
  TensorViews views_;
};

SafetensorsMetadata metadata_of(const CheckpointInfo& info);

/// The files of a checkpoint in a CheckpointStore.
class CheckpointContent {
 public:
  /// `model` is state_dict(), `training` as in save_checkpoint(). Throws CheckpointError like
  /// save_checkpoint().
  CheckpointContent(const StateDict& model, const StateDict& training, const CheckpointInfo& info);
  /// The files' bytes are views into this object.
  std::vector<CheckpointFile> files() const;
  /// Whether no value is NaN, and none infinite except in tensors of the model that are named in
  /// `may_be_infinite`. Looks at the bytes for the files, so that a GPU has no work.
  bool all_finite(const std::set<std::string>& may_be_infinite) const;

 private:
  FileTensors model_tensors_;
  FileTensors training_tensors_;
  SafetensorsPieces model_;
  SafetensorsPieces training_;
};

}  // namespace lockstep::train
