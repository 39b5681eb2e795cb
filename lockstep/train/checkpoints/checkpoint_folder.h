// The checkpoints found in a folder, and which of them are complete.
//
//   checkpoints/
//     step-00000060/
//       model.safetensors      weights, under the names that Python's state_dict() gives them
//       training.safetensors   what else the run needs to resume
//       manifest.json          sizes and checksums of these (formats/checkpoint_manifest.h)
//     latest -> step-00000060
//     best -> step-00000060    with save_top_k
//
// These functions only read. Any thread may call them while a run writes (checkpoint_store.h): a
// checkpoint gets its name only once it is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/formats/checkpoint_manifest.h>
#include <lockstep/train/checkpoints/checkpoint_options.h>

namespace lockstep::train {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kTrainingFile = "training.safetensors";
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kLatestLink = "latest";
inline constexpr const char* kBestLink = "best";

/// The name of the folder of a checkpoint after `step` optimizer steps: "step-00000060". The second
/// checkpoint of a run with this number of steps is version 2, "step-00000060-v2": a run resumed
/// with another number of steps per epoch counts its steps anew.
std::string checkpoint_name(std::int64_t step, int version = 1);

/// Whether `name` has the form that checkpoint_name() returns.
bool is_checkpoint_name(const std::string& name);

/// The folders in `directory` with such names, complete or damaged, sorted by name; empty if there
/// is no such directory. Throws DataError if it cannot be read.
std::vector<std::filesystem::path> checkpoint_folders(const std::filesystem::path& directory);

/// Whether the folder `path` is a single checkpoint, not a folder of several.
bool is_checkpoint(const std::filesystem::path& path);

/// Returns the manifest of the checkpoint `folder`. Throws CheckpointError, naming the file, if it
/// is missing or damaged; UnknownManifestError if another version wrote it; DataError if it cannot
/// be read, which does not prove damage.
formats::CheckpointManifest read_manifest(const std::filesystem::path& folder);

/// Reads every file of the checkpoint `folder`, compares its size and checksum with the manifest,
/// and returns the manifest. Throws CheckpointError with the file and the found and expected
/// values, and the errors of read_manifest().
formats::CheckpointManifest verify_checkpoint(const std::filesystem::path& folder);

/// Whether a run of this or an earlier version has left a checkpoint, complete or damaged, in the
/// places that `options` names, or one that recover_folders() would give its name back. Throws
/// DataError if the folder cannot be read.
bool holds_checkpoint(const CheckpointOptions& options);

/// Decides, for the Trainer and the program alike, whether a run resumes. Throws ConfigError if a
/// new run would replace an existing checkpoint without `overwrite`, and CheckpointError if
/// Resume::kYes finds none. The errors name the options of the Trainer.
bool decide_resume(const CheckpointOptions& options, Resume resume, bool overwrite);

/// The newest checkpoint in `directory` after `step` optimizer steps whose evaluation gave `value`
/// for `metric`; empty if there is none that can be read.
std::filesystem::path find_evaluated(const std::filesystem::path& directory, std::int64_t step,
                                     const std::string& metric, double value);

struct FoundCheckpoint {
  std::filesystem::path folder{};  ///< empty if there is no checkpoint
  formats::CheckpointManifest manifest{};
  /// Damaged folders that were skipped in the search.
  std::vector<std::filesystem::path> damaged{};
};

/// Finds and verifies the checkpoint in `directory` to resume from: the target of the link
/// `latest`, however the link is written, or the newest complete checkpoint if that target is
/// missing or damaged. Logs a warning for each damaged checkpoint that is skipped and for a link
/// that leads to no checkpoint here. Throws CheckpointError if there are checkpoints but none is
/// complete. Also throws it if a preferred checkpoint cannot be read or is of another version,
/// because that checkpoint may be complete.
FoundCheckpoint find_checkpoint(const std::filesystem::path& directory);

}  // namespace lockstep::train
