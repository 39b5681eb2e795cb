// The folder of a run's checkpoints, written: each one whole or not at all, and the old ones
// removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/atomic_folder.h>
#include <lockstep/train/checkpoints/checkpoint_folder.h>
#include <lockstep/train/checkpoints/checkpoint_options.h>

namespace lockstep {

/// A file of a checkpoint, as it lies in memory.
struct CheckpointFile {
  std::string name{};
  BytePieces pieces{};
};

/// Where the run stands, and what its evaluation has found there.
struct CheckpointMoment {
  std::int64_t epoch = 1;  ///< the epoch to go on in, from 1
  std::int64_t step = 0;   ///< optimizer steps done in all epochs
  std::map<std::string, double> metrics{};
};

/// For rank 0, and for one thread at a time.
class CheckpointStore {
 public:
  explicit CheckpointStore(CheckpointOptions options);

  /// Mends what a killed run has left unfinished, and returns the checkpoint or the file of an
  /// earlier version that the run goes on from. What save() writes
  /// then belongs to the same run: without this call it begins a new one, which removes the
  /// checkpoints of the one before. Nothing where there is none. CheckpointError when none is
  /// whole.
  std::optional<std::filesystem::path> resume();

  /// Makes the folder and removes what a killed run has left unfinished in it. CheckpointError.
  void prepare() const;

  /// Writes a checkpoint: into a temporary folder, every file and then the manifest flushed to the
  /// disk; reads it back and compares it with its checksums; renames it; turns `latest`, `best` and
  /// CheckpointOptions::link to it; and only then removes the checkpoints that are no longer kept.
  /// CheckpointError when something fails: those that were there before are whole. An old one that
  /// cannot be removed, or a link that cannot be turned, makes a warning in the log instead; such a
  /// link is removed, because it leads to an old checkpoint. Folders without a manifest, and those
  /// whose manifest cannot be read or is of another version, are left alone.
  void save(const std::vector<CheckpointFile>& files, const CheckpointMoment& moment);

  /// For a thread that saves while others of the process compute: from now on these come first
  /// where the processors are all busy.
  static void give_way();

  /// Checkpoints that are there at the same time while one is written, at most.
  static std::int64_t most_at_once(const CheckpointOptions& options) {
    return options.keep_last + options.save_top_k + 1;
  }

 private:
  struct Stored;

  void begin_run();
  void leave_behind(const CheckpointManifest& goes_on_from);
  void write(const std::vector<CheckpointFile>& files, const CheckpointMoment& moment,
             const std::filesystem::path& folder);
  std::vector<Stored> of_this_run() const;
  std::vector<Stored> best_of(std::vector<Stored> stored) const;
  void remove_others(const std::filesystem::path& written);
  void turn_links(const std::filesystem::path& latest);
  void turn_link(const std::filesystem::path& link, const std::filesystem::path& target);

  CheckpointOptions options_;
  std::int64_t first_sequence_ = 0;  // 0: the run has not begun
  std::int64_t next_sequence_ = 0;
  std::int64_t parent_ = 0;  // CheckpointManifest::parent of the next one
  bool has_links_ = true;    // false once the file system has refused to make one
  // Damaged, or written after a checkpoint that the run has gone on from. They count for nothing,
  // and go with the next one.
  std::vector<std::filesystem::path> left_behind_{};
};

}  // namespace lockstep
