// A lock on a file that is released when the processes that hold it end.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

/// An exclusive lock, by flock(2), on a file whose content names the holder. Children made by
/// fork() hold it too: the lock ends when the object is destroyed and every process that inherited
/// it has ended, in whatever way. The file stays; only the lock matters, not the existence of the
/// file. Not thread-safe.
///
/// On NFS the server keeps the lock for all hosts (Linux, NFSv4 or a running lockd). With the mount
/// options `nolock` or `local_lock=flock`, hosts do not see each other's locks. If a file system
/// has no locks at all, the object holds none and logs that.
class FileLock {
 public:
  /// Takes the lock without waiting, and creates the file if necessary. Throws a ConfigError that
  /// begins with `what` if another process holds the lock ("WHAT is in use by process 4711 on
  /// HOST"), or the file cannot be opened.
  FileLock(const std::filesystem::path& path, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace lockstep
