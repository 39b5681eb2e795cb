// A lock on a file that is released when the processes that hold it end.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

/// An exclusive lock, by flock(2), on a file whose content names the holder. Children made by
/// fork() hold it too: it is released when the object is destroyed and every process that inherited
/// it has ended, in whatever way. The file itself stays; its existence does not mean that it is
/// locked. Not thread-safe.
///
/// On NFS the server enforces the lock for all hosts (Linux, NFSv4 or a running lockd). With the
/// mount options `nolock` or `local_lock=flock`, hosts do not see each other's locks. If the file
/// system does not support locks, the object holds none and logs that.
class FileLock {
 public:
  /// Takes the lock, and creates the file if necessary. Throws a ConfigError that begins with
  /// `what` if another process holds the lock ("WHAT is in use by process 4711 on HOST") and keeps
  /// it for a tenth of a second, or the file cannot be opened.
  FileLock(const std::filesystem::path& path, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

/// Whether a FileLock on `path` exists in any process. Absent if this is unknown: the file is
/// missing or cannot be read, or its file system has no locks. If the lock is free, takes it
/// briefly; a FileLock constructed meanwhile waits.
std::optional<bool> is_locked(const std::filesystem::path& path);

}  // namespace lockstep
