// Writes a run's checkpoints to their folder, each completely or not at all, and removes old ones.
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

namespace lockstep::train {

/// A file of a checkpoint in memory.
struct CheckpointFile {
  std::string name{};
  BytePieces pieces{};
};

/// The run's position, and the results of its evaluation there.
struct CheckpointMoment {
  std::int64_t epoch = 1;  ///< the epoch to resume in, from 1
  std::int64_t step = 0;   ///< optimizer steps done in all epochs
  std::map<std::string, double> metrics{};
  bool finite = true;  ///< whether its tensors are; see CheckpointManifest::finite
};

/// Used on rank 0 only, by one thread at a time.
class CheckpointStore {
 public:
  explicit CheckpointStore(CheckpointOptions options);

  /// Cleans up after a killed run. Returns the checkpoint to resume from, or the single file of an
  /// earlier version, or nothing if there is neither. Checkpoints that save() writes afterwards
  /// belong to the resumed run. Without this call save() begins a new run, which removes the
  /// checkpoints of the previous one. Throws the errors of find_checkpoint().
  std::optional<std::filesystem::path> resume();

  /// Creates the folder and removes unfinished files of a killed run. Throws CheckpointError on
  /// failure.
  void prepare() const;

  /// Writes a checkpoint to the folder checkpoint_name(moment.step), or to one with a higher
  /// version if an earlier checkpoint of the run or a folder that must be kept has this name, in
  /// these steps: writes every file and then the manifest to a temporary
  /// folder and flushes each to disk; reads them back and compares them with their checksums;
  /// renames the folder; points `latest`, `best` and CheckpointOptions::link to it; and only then
  /// removes checkpoints that are no longer kept. Throws CheckpointError if a step fails; the
  /// earlier checkpoints stay intact. An old checkpoint that cannot be removed, or a link that
  /// cannot be updated, only causes a warning in the log; such a link is removed, because it would
  /// lead to an old checkpoint. Folders without a manifest, or whose manifest cannot be read or is
  /// of another version, are left alone.
  void save(const std::vector<CheckpointFile>& files, const CheckpointMoment& moment);

  /// The folder that save() has written last; empty if there is none.
  const std::filesystem::path& newest() const { return newest_; }

  /// Lowers the priority of the calling thread, which saves in the background: when all processors
  /// are busy, the computing threads of the process run first.
  static void give_way();

  /// Maximum number of checkpoints on disk while one is written; one more after the run has
  /// diverged, see CheckpointOptions::keep_last.
  static std::int64_t most_at_once(const CheckpointOptions& options) {
    return options.keep_last + options.save_top_k + 1;
  }

 private:
  struct Stored;

  void begin_run();
  bool may_replace(const std::filesystem::path& folder) const;
  std::filesystem::path free_folder(std::int64_t step) const;
  void leave_behind(const formats::CheckpointManifest& goes_on_from);
  void write(const std::vector<CheckpointFile>& files, const CheckpointMoment& moment,
             const std::filesystem::path& folder);
  std::vector<Stored> of_this_run() const;
  std::vector<Stored> best_of(std::vector<Stored> stored) const;
  static const Stored* newest_finite(const std::vector<Stored>& stored);
  void remove_others(const std::filesystem::path& written);
  void warn_of_divergence(const std::filesystem::path& folder, const char* what_happened);
  void turn_links(const std::filesystem::path& latest);
  void turn_link(const std::filesystem::path& link, const std::filesystem::path& target);

  CheckpointOptions options_;
  std::int64_t first_sequence_ = 0;      // 0: the run has not begun
  std::int64_t first_since_resume_ = 0;  // the first that this object writes
  std::int64_t next_sequence_ = 0;
  std::int64_t parent_ = 0;  // CheckpointManifest::parent of the next one
  std::filesystem::path newest_{};
  bool has_diverged_ = false;  // whether save() has warned of values that are not finite
  bool has_links_ = true;      // false once the file system has refused to create one
  // Checkpoints that are damaged, or newer than the one the run resumed from. They are ignored and
  // removed with the next save.
  std::vector<std::filesystem::path> left_behind_{};
};

}  // namespace lockstep::train
