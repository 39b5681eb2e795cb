// A folder that is filled file by file and seen only when it is whole.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Bytes that lie in several places of memory and belong behind each other.
using BytePieces = std::vector<std::span<const std::byte>>;

/// Filled beside its place, as ".tmp-NAME", and renamed by commit(); without that, also when an
/// exception passes, nothing is left and what was in its place stays. For one thread at a time, and
/// for one process at a time that fills folders in a parent.
///
///   AtomicFolder folder("checkpoints/step-00000060");
///   folder.write("model.safetensors", {head, data});
///   folder.commit();
class AtomicFolder {
 public:
  /// DataError when no folder can be made there. Replaces what a killed process left.
  explicit AtomicFolder(const std::filesystem::path& path);
  ~AtomicFolder();  ///< A forked child leaves the folder to its parent.
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where the files lie until commit().
  const std::filesystem::path& temporary() const { return temporary_; }

  /// Writes the pieces one behind the other into a file and flushes it to the disk. DataError when
  /// the disk is full or fails.
  void write(const std::string& name, const BytePieces& pieces) const;

  /// Flushes the folder to the disk, gives it its name, and flushes the name. A folder that has the
  /// name already is exchanged for it, so that there is one at any moment, and removed. On file
  /// systems without an exchange it is set aside for a moment; recover_folders() gives it back its
  /// name when the process is killed then. DataError when that fails; what was there before has the
  /// name. The log has a warning when only the old folder cannot be removed.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  const pid_t process_;
};

/// Removes a folder with all that is in it. Its name goes first, so that a process which is killed
/// meanwhile leaves no part of it under the name. DataError when that fails.
void remove_folder(const std::filesystem::path& path);

/// Mends what AtomicFolder and remove_folder() have left in `parent`, for folders whose name
/// `is_ours` accepts, because their process was killed or could not remove it. A folder that
/// commit() has set aside gets its name back where nothing has it; all else is removed, also what
/// is being made there now: no other process may be at work. Does not throw.
void recover_folders(const std::filesystem::path& parent,
                     const std::function<bool(const std::string& name)>& is_ours);

/// Flushes the folder's list of names to the disk. DataError when that fails.
void flush_names(const std::filesystem::path& folder);

/// Makes `link` a symbolic link to `target`, a path from the link's folder, in place of a link or
/// file of that name, and flushes that to the disk. Readers see the old one or the new one.
/// DataError when that fails, as on file systems without symbolic links.
void replace_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace lockstep
