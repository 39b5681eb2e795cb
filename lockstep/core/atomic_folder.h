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

/// The folder is filled beside its path, as ".tmp-NAME", and renamed by commit(). If commit() is
/// not called, for example after an exception, the new folder is removed and the old folder at the
/// path stays. Not thread-safe; only one process at a time may fill folders in the same parent.
///
///   AtomicFolder folder("checkpoints/step-00000060");
///   folder.write("model.safetensors", {head, data});
///   folder.commit();
class AtomicFolder {
 public:
  /// Creates the temporary folder, replacing one that a killed process left. Throws a DataError if
  /// that fails.
  explicit AtomicFolder(const std::filesystem::path& path);
  /// Removes the temporary folder unless commit() has renamed it. Does nothing in a forked child.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// The location of the files until commit().
  const std::filesystem::path& temporary() const { return temporary_; }

  /// Writes the pieces one after the other into a file and flushes it to the disk. Throws a
  /// DataError if the disk is full or fails.
  void write(const std::string& name, const BytePieces& pieces) const;

  /// Flushes the folder to the disk, gives it its name, and flushes the name. If an old folder has
  /// that name, the two are exchanged atomically, so that one always exists, and the old one is
  /// then removed. On file systems without an atomic exchange the old folder is set aside for a
  /// moment; if the process is killed then, recover_folders() restores its name. Throws a DataError
  /// on failure; the old folder then keeps its name. If only the removal of the old folder fails, a
  /// warning is logged.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  const pid_t process_;
};

/// Removes a folder with its contents. It is renamed first, so that no partly removed folder keeps
/// the name if the process is killed meanwhile. Throws a DataError on failure.
void remove_folder(const std::filesystem::path& path);

/// Cleans up what AtomicFolder and remove_folder() left in `parent`, because their process was
/// killed or a removal failed, for folders whose names `is_ours` accepts. A folder that commit()
/// set aside gets its name back if the name is free; all other leftovers are removed. That includes
/// folders being written, so no other process may be writing in `parent`. Does not throw.
void recover_folders(const std::filesystem::path& parent,
                     const std::function<bool(const std::string& name)>& is_ours);

/// Whether recover_folders() would give a folder its name back. Changes nothing and does not throw,
/// so other processes may be writing in `parent`.
bool has_folder_set_aside(const std::filesystem::path& parent,
                          const std::function<bool(const std::string& name)>& is_ours);

/// Flushes the folder's list of names to the disk. Throws a DataError on failure.
void flush_names(const std::filesystem::path& folder);

/// Makes `link` a symbolic link to `target`, a path relative to the link's folder, and flushes it
/// to the disk. Replaces a link or file of that name; readers see the old one or the new one.
/// Throws a DataError on failure, for example on file systems without symbolic links.
void replace_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace lockstep
