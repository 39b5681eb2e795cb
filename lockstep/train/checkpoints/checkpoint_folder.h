// The checkpoints in a folder, as they are found: which there are, and which of them are whole.
//
//   checkpoints/
//     step-00000060/
//       model.safetensors      weights, under the names that Python's state_dict() gives them
//       training.safetensors   what the run needs beside them to go on
//       manifest.json          sizes and checksums of these (formats/checkpoint_manifest.h)
//     latest -> step-00000060
//     best -> step-00000060    with save_top_k
//
// Reads only. Any thread may call these functions while a run writes (checkpoint_store.h): a
// checkpoint has its name when it is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/formats/checkpoint_manifest.h>

namespace lockstep {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kTrainingFile = "training.safetensors";
inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kLatestLink = "latest";
inline constexpr const char* kBestLink = "best";

/// The name of the folder of a checkpoint after `step` optimizer steps: "step-00000060".
std::string checkpoint_name(std::int64_t step);

/// Whether `name` is one that checkpoint_name() gives.
bool is_checkpoint_name(const std::string& name);

/// The folders in `directory` that are named so, whole or damaged, in the order of their names;
/// none where there is no such directory. DataError when it cannot be read.
std::vector<std::filesystem::path> checkpoint_folders(const std::filesystem::path& directory);

/// Whether the folder `path` is one checkpoint, not a folder of several.
bool is_checkpoint(const std::filesystem::path& path);

/// The manifest of the checkpoint `folder`. CheckpointError, naming the file, when it is missing or
/// damaged, UnknownManifestError when another version has written it, and DataError when it cannot
/// be read, which proves no damage.
CheckpointManifest read_manifest(const std::filesystem::path& folder);

/// Reads every file of the checkpoint `folder` and compares size and checksum with the manifest,
/// which it returns. CheckpointError with the file, what was found and what was expected, and the
/// errors of read_manifest().
CheckpointManifest verify_checkpoint(const std::filesystem::path& folder);

struct FoundCheckpoint {
  std::filesystem::path folder{};  ///< empty: there is none
  CheckpointManifest manifest{};
  /// Folders that were found damaged on the way to this one.
  std::vector<std::filesystem::path> damaged{};
};

/// The checkpoint in `directory` to go on from, verified: the one that the link `latest` leads to,
/// however the link is written, or, where that is missing or damaged, the newest one that is whole.
/// The log has a warning for each damaged one that is passed over, and for a link that leads to no
/// checkpoint here. CheckpointError when there are checkpoints, but none is whole, and when one
/// that comes first cannot be read or is of another version: it may be whole.
FoundCheckpoint find_checkpoint(const std::filesystem::path& directory);

}  // namespace lockstep
