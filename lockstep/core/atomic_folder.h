// A folder that is filled file by file and becomes visible only when it is complete.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Pieces of memory that are written one after the other.
using BytePieces = std::vector<std::span<const std::byte>>;

/// Filled beside its path, as ".tmp-NAME", and renamed by commit(). Without a commit, also after an
/// exception, no folder is left and the old folder at the path stays. Not thread-safe; only one
/// process at a time may fill folders in a parent.
///
///   AtomicFolder folder("checkpoints/step-00000060");
///   folder.write("model.safetensors", {head, data});
///   folder.commit();
class AtomicFolder {
 public:
  /// Throws a DataError if the folder cannot be created. Replaces the remains of a killed process.
  explicit AtomicFolder(const std::filesystem::path& path);
  ~AtomicFolder();  ///< A forked child leaves the folder to its parent.
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// The location of the files until commit().
  const std::filesystem::path& temporary() const { return temporary_; }

  /// Writes the pieces one after the other into a file and flushes it to the disk. Throws a
  /// DataError if the disk is full or fails.
  void write(const std::string& name, const BytePieces& pieces) const;

  /// Flushes the folder to the disk, gives it its name, and flushes the name. An old folder of that
  /// name is exchanged for it, so that one exists at any moment, and then removed. On file systems
  /// without an exchange the old folder is set aside for a moment; if the process is killed then,
  /// recover_folders() restores its name. Throws a DataError on failure; the old folder then has
  /// the name. If only the old folder cannot be removed, a warning is logged.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  const pid_t process_;
};

/// Removes a folder with its contents. The folder is renamed first, so that a process that is
/// killed meanwhile leaves no part of it under the name. Throws a DataError on failure.
void remove_folder(const std::filesystem::path& path);

/// Cleans up what AtomicFolder and remove_folder() left in `parent` because their process was
/// killed or could not remove it, for folders whose name `is_ours` accepts. A folder that commit()
/// set aside gets its name back if the name is free; everything else is removed, including folders
/// that are being written: no other process may be writing there. Does not throw.
void recover_folders(const std::filesystem::path& parent,
                     const std::function<bool(const std::string& name)>& is_ours);

/// Flushes the folder's list of names to the disk. Throws a DataError on failure.
void flush_names(const std::filesystem::path& folder);

/// Makes `link` a symbolic link to `target`, a path relative to the link's folder, and flushes it
/// to the disk. Replaces a link or file of that name; readers see the old one or the new one.
/// Throws a DataError on failure, for example on file systems without symbolic links.
void replace_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace lockstep
