// manifest.json of a checkpoint: the contents of the folder, with checksums.
//
//   {
//     "format": "lockstep checkpoint folder 1",
//     "epoch": 2,
//     "step": 60,
//     "sequence": 3,
//     "first_sequence": 1,
//     "parent": 2,
//     "metrics": {"accuracy": 0.97, "loss": 0.1},
//     "files": {"model.safetensors": {"bytes": 88920, "xxh3_64": "85e8aecd2ac6e2d9"}},
//     "xxh3_64": "2d06800538d394c2"
//   }
//
// A checkpoint with values that are not finite also has the entry "finite": false. The last entry
// is the checksum (checksum.h) of the text without this entry. The first checkpoint of a run has no
// parent, and neither do checkpoints written by earlier versions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <lockstep/core/error.h>

namespace lockstep::formats {

/// A checksum as 16 hexadecimal digits, the form used in files and messages.
std::string checksum_digits(std::uint64_t checksum);

struct ManifestFile {
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< 64-bit XXH3 (checksum.h)
};

struct CheckpointManifest {
  std::int64_t epoch = 1;  ///< the epoch to resume in, from 1
  std::int64_t step = 0;   ///< optimizer steps done in all epochs
  /// The number of this checkpoint among all that were written into the same parent folder, from 1.
  /// The newest one has the largest number.
  std::int64_t sequence = 1;
  std::int64_t first_sequence = 1;  ///< the sequence of the run's first checkpoint
  /// The sequence of the checkpoint that the run wrote before this one or, if it has resumed since
  /// then, of the one from which it resumed. Checkpoints between the two no longer belong to the
  /// run. 0: none, or not known.
  std::int64_t parent = 0;
  /// Whether the weights and the training state are finite. If not, the run had diverged.
  bool finite = true;
  /// Results of the evaluation before the checkpoint, by name. All are finite. The file has
  /// utf8_text() of the names.
  std::map<std::string, double> metrics{};
  std::map<std::string, ManifestFile> files{};  ///< by their names in the folder
};

/// The text of the file.
std::string serialize_manifest(const CheckpointManifest& manifest);

/// The manifest is intact, but this version does not know its format.
class UnknownManifestError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// The inverse of serialize_manifest(). Throws a CheckpointError that begins with `name` for every
/// text that serialize_manifest() does not write, even if only one bit differs. Throws an
/// UnknownManifestError if another version wrote the text. The file names in the result contain no
/// folder.
CheckpointManifest parse_manifest(std::string_view text, const std::string& name);

}  // namespace lockstep::formats
